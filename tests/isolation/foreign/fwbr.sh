# The bridges that Proxmox VE puts between a guest and its bridge when its firewall is on for it: fwbr.sh plug | unplug
set -eu
for guest in 101 102; do
    tap=tap${guest}i0 bridge=fwbr${guest}i0 inner=fwln${guest}i0 outer=fwpr${guest}p0
    if [ "$1" = plug ]; then
        ip link add name "$bridge" type bridge
        ip link add name "$inner" type veth peer name "$outer"
        for link in "$bridge" "$inner" "$outer"; do
            echo 1 >"/proc/sys/net/ipv6/conf/$link/disable_ipv6"
        done
        ip link set "$bridge" up
        ip link set "$inner" master "$bridge" up
        ip link set "$tap" master "$bridge" up
        ip link set "$outer" master vmbr1 up
    else
        ip link delete "$outer" 2>/dev/null || :
        ip link delete "$bridge" 2>/dev/null || :
        ip link set "$tap" master vmbr1 up
    fi
done
