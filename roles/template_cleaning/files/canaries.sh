#!/bin/sh
# For the test of the cleaning: leaves marked secrets, keys, logs and traces where they would be. Usage: canaries.sh [ROOT]
set -eu
cd "${1:-/}"
mark() {
    mkdir -p "$(dirname "$1")"
    printf 'GLASSLAB-CANARY %s\n' "$1" >>"$1"
}
for path in \
    etc/glasslab/agent/hec_token etc/glasslab/agent/model_api_key etc/glasslab/agent/signing_key etc/glasslab/mcp/hec_token \
    etc/glasslab/mcp/signing_key etc/glasslab/collector/search_token etc/glasslab/witness/hec_token etc/glasslab/ca/hec.crt \
    srv/glasslab/documents/secret.md opt/splunk/etc/auth/glasslab/server.pem opt/splunk/etc/apps/glasslab/local/inputs.conf \
    opt/splunk/etc/instance.cfg opt/splunk/etc/passwd opt/splunk/etc/.ui_login opt/splunk/etc/auth/splunk.secret opt/splunk/etc/auth/server.pem \
    opt/splunk/etc/auth/ca.srl opt/splunk/etc/auth/splunkweb/privkey.pem opt/splunk/etc/system/local/server.conf opt/splunk/etc/system/local/user-seed.conf \
    opt/splunk/etc/licenses/enterprise/own.lic opt/splunk/etc/users/admin/prefs.conf etc/glasslab/splunk/started var/cache/glasslab/splunk-canary.deb \
    opt/splunk/var/lib/events.db etc/ssl/private/canary.key \
    etc/ssh/ssh_host_canary_key root/.ssh/id_canary home/canary/.ssh/authorized_keys etc/shadow- \
    root/.bash_history home/canary/.bash_history root/.python_history root/.lesshst root/.viminfo root/.ansible/tmp/canary \
    root/.cache/canary root/lab/.env home/canary/lab/.env root/.netrc \
    var/cache/debconf/passwords.dat var/lib/systemd/credential.secret \
    var/lib/cloud/instances/canary/user-data.txt etc/netplan/50-cloud-init.yaml etc/sudoers.d/90-cloud-init-canary \
    var/lib/dhcp/dhclient.canary.leases var/lib/systemd/network/canary var/lib/apt/lists/canary_Packages \
    var/log/canary.log var/log/installer/cdebconf/questions.dat var/log/journal/canary/system.journal var/log/apt/history.log \
    var/backups/shadow.bak var/mail/canary tmp/canary var/tmp/canary var/crash/canary; do
    mark "$path"
done
# The live machine's journal too, through its own door.
[ "${1:-/}" != / ] || logger -t canary "GLASSLAB-CANARY journal"
