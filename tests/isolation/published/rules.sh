#!/bin/sh
# Fixture, not the product: the published lab's bridge and rules. See README.md beside it.
# bridge: the bridge alone, with no rules at all. load: its rules. unload: all of it away.
set -e

bridge() {
	ip link add vmbr1 address fe:10:00:00:00:10 type bridge forward_delay 0 stp_state 0
	# its IPv6 address at once, without looking whether somebody else has it
	sysctl -qw net.ipv6.conf.vmbr1.accept_dad=0
	ip address add 10.10.10.1/24 dev vmbr1
	ip link set vmbr1 up
	sysctl -qw net.ipv4.ip_forward=1
}

# What the guests send to other places is masqueraded; private ranges are closed to their own subnet, the intra-lab
# traffic goes before that; of what comes in from the bridge only answers are taken.
rules() {
	iptables -t nat "$1" POSTROUTING -s 10.10.10.0/24 -o vmbr0 -j MASQUERADE
	iptables "$2" FORWARD -s 10.10.10.0/24 -d 10.0.0.0/8 -j DROP
	iptables "$2" FORWARD -s 10.10.10.0/24 -d 172.16.0.0/12 -j DROP
	iptables "$2" FORWARD -s 10.10.10.0/24 -d 192.168.0.0/16 -j DROP
	iptables "$2" FORWARD -s 10.10.10.0/24 -d 10.10.10.0/24 -j ACCEPT
	iptables "$2" INPUT -i vmbr1 -j DROP
	iptables "$2" INPUT -i vmbr1 -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
}

case "$1" in
bridge) bridge ;;
load) rules -A -I ;;
unload)
	rules -D -D 2>/dev/null || true
	ip link delete vmbr1 2>/dev/null || true
	;;
*)
	echo "usage: rules.sh bridge | load | unload" >&2
	exit 2
	;;
esac
