#!/usr/bin/env bash
# Makes the root in which the jobs of the truth benchmark run: a Debian (forky) with
# PyTorch and Open MPI. Some 1.5 GB, some minutes. Call: truth/root.sh FOLDER
set -euo pipefail
root=$1
[ -e "$root/.complete" ] && [ -e "$root/usr/bin/mpirun" ] && exit 0

if ! command -v debootstrap >/dev/null; then
	apt-get update -q || echo "truth/root.sh: apt-get update had errors, going on" >&2
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends debootstrap
fi
scripts=/usr/share/debootstrap/scripts
[ -e "$scripts/forky" ] || ln -s sid "$scripts/forky" # older debootstraps do not know it
# The mirror that apt uses, without the security archive, which has no forky of its own.
mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' | awk '$1 !~ /-security$/ { print $2; exit }')
[ -n "$mirror" ] || { echo "truth/root.sh: apt has no source: add Debian's archive as apt knows it (deb URI SUITE main)" >&2; exit 1; }
rm -rf "$root"
mkdir -p "$root" # debootstrap makes no folder above it
debootstrap --variant=minbase --include=python3-torch,python3-numpy,procps,openmpi-bin forky "$root" "$mirror"
touch "$root/.complete"
