#!/bin/sh
# Makes .venv: the control node's Python environment, from the hash-locked requirements. Says what it installs.
# Usage: scripts/setup.sh [--with-lab | --with-tests | --with-emulation]   (also the distribution packages that the embedded lab needs; and
# those of the tests; or those of `make test-emulated`)
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
venv="$root/.venv"

fail() { printf 'setup: %s\n' "$*" >&2; exit 2; }
say() { printf 'setup: %s\n' "$*"; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

install_packages() {
    missing=""
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null 2>&1 || fail "these packages are missing and apt-get is not there to install them:$missing; install them, then run this again"
    # Asked here and not where apt-get's own messages are put away.
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; } ||
        fail "these packages are missing and $(id -un) may not install them here:$missing; have root run: apt-get install$missing"
    say "installing distribution packages:$missing (make destroy leaves them)"
    # shellcheck disable=SC2086  # a list of names
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 </dev/null || {
        as_root apt-get update -qq </dev/null || fail "apt-get update failed; see its message above"
        # shellcheck disable=SC2086
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null </dev/null ||
            fail "apt-get could not install:$missing; see its message above"
    }
}

usable_python() { "$1" -c 'import sys; sys.exit(not (3, 12) <= sys.version_info[:2])' >/dev/null 2>&1; }

# A Python of 3.12 or later: the one asked for in .python-version first, else any on PATH or of pyenv's.
find_python() {
    wanted=$(cat "$root/.python-version")
    pyenv="${PYENV_ROOT:-${HOME:-}/.pyenv}"
    for candidate in "python$wanted" \
        "$pyenv/versions/$wanted"*/bin/python3 python3.13 python3.12 python3.14 \
        "$pyenv"/versions/3.1[2-9]*/bin/python3 python3; do
        path=$(command -v "$candidate" 2>/dev/null) || continue
        if usable_python "$path"; then printf '%s\n' "$path"; return 0; fi
    done
    return 1
}

# What the embedded lab needs of the distribution; the image's keyring is Debian's also on Ubuntu.
case "${1:-}" in --with-lab | --with-tests | --with-emulation) install_packages mmdebstrap debian-archive-keyring systemd-container iproute2 \
    nftables iptables openssh-client openssl dnsmasq-base procps ca-certificates ;;
esac

# Packer, and machines in software emulation.
[ "${1:-}" != --with-emulation ] || install_packages packer qemu-system-x86 qemu-utils xorriso

# The browser that tests look at the log's page with. Ubuntu's package is a snap: there it is the build that playwright brings.
browser() {
    [ "$1" = --with-tests ] || return 0
    install_packages libnss3-tools fonts-dejavu-core
    if command -v chromium >/dev/null 2>&1; then return 0; fi
    if ! grep -q '^ID=ubuntu$' /etc/os-release; then install_packages chromium; return 0; fi
    say "installing playwright's Chromium and what it needs (make destroy leaves them)"
    as_root "$venv/bin/playwright" install --with-deps chromium >/dev/null ||
        fail "playwright could not install Chromium; put one on PATH as chromium, then run this again"
}

stamp="$venv/.complete"
want=$(cat requirements/bootstrap.txt requirements/control.txt agent_src/pyproject.toml scripts/setup.sh | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" = "$want $root" ] && "$venv/bin/python" -c 'import glasslab' 2>/dev/null; then browser "${1:-}"; exit 0; fi

for place in "$venv" "$root"; do
    [ -e "$place" ] || continue
    [ -w "$place" ] || fail "$place belongs to $(stat -c %U "$place") or is read-only, and $(id -un) may not write there; give it to $(id -un) (chown -R), or work in a clone of your own"
    break
done
command -v python3 >/dev/null 2>&1 || fail "python3 is not there; install it (Debian, Ubuntu: apt-get install python3), then run this again"
python3 -c 'import ensurepip' 2>/dev/null || install_packages python3-venv

boot="$root/.venv/.bootstrap"
rm -f "$stamp"
say "making .venv (about 500 MB)"
mkdir -p "$venv"
[ -x "$boot/bin/uv" ] || {
    python3 -m venv --clear "$boot" || fail "python3 -m venv failed; install python3-venv, then run this again"
    "$boot/bin/pip" install -q --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt ||
        fail "pip could not install uv; is PyPI (or your mirror of it, by pip's own configuration) reachable?"
}
uv="$boot/bin/uv"
# uv reads no pip.conf: it is handed the mirrors and the CA that pip is configured with here. The hashes say what is right, wherever it is.
pip_setting() {
    "$boot/bin/pip" --disable-pip-version-check config list 2>/dev/null |
        sed -n -e "s/^:env:\\.$1=/1&/p" -e "s/^install\\.$1=/2&/p" -e "s/^global\\.$1=/3&/p" |
        sort | sed -n "1s/^[^=]*=['\"]\\(.*\\)['\"]\$/\\1/p" | sed 's/\\n/ /g; s/^ *//'
}
hand_over() { # uv's variable, pip's setting, what uv has between several
    value=$(pip_setting "$2" | tr ' ' "${3:- }")
    eval "[ -n \"\${$1:-}\" ]" || [ -z "$value" ] || export "$1=$value"
}
hand_over UV_DEFAULT_INDEX index-url
hand_over UV_INDEX extra-index-url
hand_over UV_FIND_LINKS find-links ,
hand_over SSL_CERT_FILE cert
export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}" UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"
if python=$(find_python); then
    UV_PYTHON_DOWNLOADS=never
else
    say "no Python 3.12 or later found here; asking uv for its own 3.13"
    python=3.13
    UV_PYTHON_DOWNLOADS=automatic
fi
export UV_PYTHON_DOWNLOADS
"$uv" venv -q --allow-existing --python "$python" "$venv" 2>/dev/null ||
    fail "no Python 3.12 or later is on this machine and none could be downloaded; install one (Debian 13, Ubuntu 24.04: apt-get install python3; Debian 12: pyenv install 3.13), then run this again"
"$uv" pip sync -q --python "$venv/bin/python" --require-hashes requirements/control.txt ||
    fail "the locked requirements could not be installed; is PyPI (or your mirror of it) reachable, and is there 1 GB of disk?"
"$uv" pip install -q --python "$venv/bin/python" --no-deps --no-build-isolation -e agent_src ||
    fail "agent_src could not be installed into .venv; see the message above"
printf '%s\n' "$want $root" >"$stamp"
say "done: $("$venv/bin/python" --version), $("$venv/bin/ansible" --version | sed -n 1p)"
browser "${1:-}"
