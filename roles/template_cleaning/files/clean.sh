#!/bin/sh
# Takes out of a machine what belongs to this one machine or to its build, so that it can become a template.
# Usage: clean.sh now|last|check [ROOT [BUILD_USER]]
#   now    everything but what the build still needs: SSH keys, its user, temporary files (the program that runs this lies there)
#   last   everything; at the end of a shutdown, when nothing writes any more
#   check  changes nothing; prints what is left, one path a line; exit code 1 when there is something
# ROOT is another root directory than / (a mounted image). Files are overwritten before they are removed: a disk image keeps what
# was in the blocks of a removed file, and trimming frees whole clusters only.
set -u

verb=${1:-}
root=${2:-/}
user=${3:-root}
case $verb in now | last | check) ;; *)
    echo "clean.sh: the first word must be now, last or check, and is '$verb'" >&2
    exit 2
    ;;
esac
cd "$root" || exit 2

# Lists of shell patterns, relative to the root directory, a line each.
secrets="
etc/glasslab/agent/* etc/glasslab/mcp/* etc/glasslab/collector/* etc/glasslab/witness/* etc/glasslab/ca/*
srv/glasslab/documents/*
opt/splunk/etc/auth/glasslab/* opt/splunk/etc/apps/*/local/* opt/splunk/var/*
opt/splunk/etc/instance.cfg opt/splunk/etc/passwd opt/splunk/etc/.ui_login opt/splunk/etc/auth/splunk.secret opt/splunk/etc/auth/*.pem
opt/splunk/etc/auth/*.srl opt/splunk/etc/auth/splunkweb/* opt/splunk/etc/system/local/* opt/splunk/etc/licenses/*/* opt/splunk/etc/users/*
etc/glasslab/splunk/* var/cache/glasslab/splunk-*
etc/ssl/private/*.key
var/lib/systemd/random-seed var/lib/systemd/credential.secret boot/efi/loader/random-seed var/lib/urandom/random-seed
var/cache/debconf/passwords.dat var/cache/debconf/passwords.dat-old
root/.*history home/*/.*history root/.lesshst home/*/.lesshst root/.viminfo home/*/.viminfo
root/.cache root/.config root/.netrc home/*/.cache home/*/.netrc
root/.glasslab home/*/.glasslab root/lab home/*/lab
"
access="
etc/ssh/ssh_host_* root/.ssh home/*/.ssh
etc/passwd- etc/shadow- etc/group- etc/gshadow- etc/subuid- etc/subgid-
tmp/* tmp/.[!.]* var/tmp/* var/tmp/.[!.]* root/.ansible home/*/.ansible
"
build="
var/lib/cloud/* var/lib/cloud/.[!.]* run/cloud-init etc/netplan/*cloud-init* etc/network/interfaces.d/*cloud-init*
etc/systemd/network/*cloud-init* etc/sudoers.d/*cloud-init* etc/ssh/sshd_config.d/*cloud-init* etc/udev/rules.d/70-persistent-net.rules
var/lib/apt/lists/* var/cache/apt/*.bin var/cache/apt/archives/*.deb var/cache/apt/archives/partial/*
var/lib/dhcp/* var/lib/dhcpcd/* var/lib/NetworkManager/* var/lib/systemd/network/* var/db/dhcpcd/*
var/lib/systemd/timesync/* var/lib/systemd/coredump/* var/lib/systemd/catalog/.keep var/crash/* var/backups/* var/mail/* var/spool/cron/crontabs/*
"

# Files of a pattern that are there; sh keeps a pattern that matches nothing as it is.
found() {
    for path in $1; do
        if [ -e "$path" ] || [ -L "$path" ]; then printf '%s\n' "$path"; fi
    done
}

overwrite() {
    found "$1" | while IFS= read -r path; do
        [ -L "$path" ] || find "$path" -xdev -type f -exec shred --force --iterations=1 --zero --remove {} +
        rm -rf --one-file-system -- "$path"
    done
}

remove() {
    found "$1" | while IFS= read -r path; do rm -rf --one-file-system -- "$path"; done
}

logs() {
    [ -d var/log ] || return 0
    find var/log -xdev -type f
}

is_live() { [ "$root" = / ]; }

clean_logs() {
    # From here on the journal is kept in memory, so that nothing comes back.
    if is_live; then journalctl --relinquish-var >/dev/null 2>&1; fi
    logs | while IFS= read -r path; do
        case $path in
        var/log/wtmp | var/log/btmp | var/log/lastlog | var/log/faillog)
            # These are expected to be there, with their owner and mode.
            size=$(stat -c %s "$path")
            [ "$size" = 0 ] || shred --force --iterations=1 --zero "$path"
            : >"$path"
            ;;
        *) overwrite "$path" ;;
        esac
    done
    remove "var/log/journal/* var/log/installer"
}

clean_access() {
    overwrite "$access"
    [ "$user" = root ] || ! is_live || userdel --force --remove "$user" >/dev/null 2>&1
    overwrite "etc/passwd- etc/shadow- etc/group- etc/gshadow- etc/subuid- etc/subgid-"
}

clean_identity() {
    # Empty, not missing: systemd makes a new one at the next boot and does not take that for the first boot of an installation.
    : >etc/machine-id
    [ -L var/lib/dbus/machine-id ] || remove var/lib/dbus/machine-id
    # The installer wrote the build's interface there; the next machine's comes from cloud-init.
    if [ -e etc/network/interfaces ]; then
        printf 'source /etc/network/interfaces.d/*\n\nauto lo\niface lo inet loopback\n' >etc/network/interfaces
    fi
    if [ -f etc/resolv.conf ] && [ ! -L etc/resolv.conf ]; then : >etc/resolv.conf; fi
}

left() {
    found "$secrets"
    found "$access"
    found "$build" | grep -v '^run/'
    logs | while IFS= read -r path; do [ ! -s "$path" ] || printf '%s\n' "$path"; done
    [ ! -s etc/machine-id ] || echo etc/machine-id
    [ "$user" = root ] || ! grep -q "^$user:" etc/passwd || echo "etc/passwd: $user"
}

case $verb in
now)
    overwrite "$secrets"
    overwrite "$build"
    clean_logs
    ;;
last)
    overwrite "$secrets"
    overwrite "$build"
    clean_access
    clean_identity
    clean_logs
    # Said in the machine itself, for a template on a Proxmox VE host is opened by nobody: "clean", or what is left.
    mkdir -p usr/share/glasslab
    remains=$(left)
    printf '%s\n' "${remains:-clean}" >usr/share/glasslab/cleaned
    ! is_live || fstrim --all >/dev/null 2>&1
    sync
    [ -z "$remains" ]
    ;;
check)
    remains=$(left)
    [ -z "$remains" ] || printf '%s\n' "$remains"
    [ -z "$remains" ]
    ;;
esac
