# What the daemon does beside loading its chains: docker.sh start | stop
set -eu
if [ "$1" = start ]; then
    ip link show docker0 >/dev/null 2>&1 || ip link add docker0 type bridge
    ip address replace 172.17.0.1/16 dev docker0
    ip link set docker0 up
    echo 1 >/proc/sys/net/ipv4/ip_forward
    iptables -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
    iptables -t nat -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
    iptables -t nat -I POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
    iptables -I FORWARD -j DOCKER-FORWARD
    iptables -I FORWARD -j DOCKER-USER
    iptables -P FORWARD DROP
else
    # as people clear away what it left: everything in these tables, whoever's it is, and whatever is put back meanwhile
    for table in raw nat filter; do
        iptables -t "$table" -F
        iptables -t "$table" -X || :
    done
    iptables -P FORWARD ACCEPT
    ip link delete docker0 2>/dev/null || :
fi
