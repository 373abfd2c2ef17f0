#!/usr/bin/env bash
# Installs the Debian packages that the tests and the generators need, those
# that are missing. `make build` and `make run` need none of them.
set -euo pipefail

packages=(
	ca-certificates        # the Go module proxy
	git                    # the Go command, check-generated
	gcc libc6-dev          # the race detector, tracecore-gpu and its stand-in libraries
	clang-16 llvm-16       # BPF objects: the pinned compiler
	runc                   # runs the container image
	qemu-system-x86 qemu-system-arm # test machines
	busybox-static kmod    # their user space, and which module needs which
	etcd-server            # below the API server of `make cluster`
	debian-archive-keyring # Debian's signature on their kernels
	slurmctld slurm-client # the controller that the exporter of Slurm is tested with
	tmux                   # shows `tracecore top`
	python3                # whose stacks are compared with those of its faulthandler
)

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()
for package in "${packages[@]}"; do
	installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "installing ${missing[*]}"
if [ "$(id -u)" != 0 ]; then
	echo "tools/deps.sh: not root: run it with sudo, or install ${missing[*]}" >&2
	exit 1
fi
# A source that does not answer must not stop what the others have.
apt-get update -q || echo "tools/deps.sh: apt-get update had errors, going on" >&2
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
