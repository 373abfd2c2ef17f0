#!/usr/bin/env bash
# Makes the container images: tools/image.sh ARCHITECTURE…
# bin/image/tracecore.tar is one static binary. bin/image/tracecore-gpu.tar has the
# helper program beside it that loads NVIDIA's libraries, and the glibc that they
# need: Debian's, newer than most nodes' so that libraries of a node find what they
# ask for, out of the archive that apt is set up with. It is made for the
# architectures that a C compiler is here for (another's: gcc-aarch64-linux-gnu or
# gcc-x86-64-linux-gnu), where dpkg-deb is.
set -euo pipefail
cd "$(dirname "$0")/.."
out=bin/image bin=.cache/bin
suites=trixie,trixie-security

compiler() { # ARCHITECTURE
	if [ "$1" = "$(go env GOHOSTARCH)" ]; then
		echo cc
	else
		case $1 in amd64) echo x86_64-linux-gnu-gcc ;; arm64) echo aarch64-linux-gnu-gcc ;; esac
	fi
}

helper() { # ARCHITECTURE
	local cc
	cc=$(compiler "$1")
	if ! command -v "$cc" >/dev/null || ! command -v dpkg-deb >/dev/null; then
		echo "no $cc or no dpkg-deb: no image for GPUs, $1"
		return
	fi
	CC=$cc CGO_ENABLED=1 CGO_CFLAGS='-O2 -Wno-deprecated-declarations' GOOS=linux GOARCH=$1 go build -ldflags '-s -w' \
		-o "$out/$1/tracecore-gpu" ./receivers/gpureceiver/cmd/tracecore-gpu
	"$bin/debfiles" -suites $suites -arch "$1" libc6 usr/share/doc/libc6/copyright \
		'usr/lib/*-linux-gnu/'{ld-linux-*.so.?,libc.so.6,libdl.so.2,libm.so.6,libpthread.so.0,librt.so.1} >>"$out/debian.json"
	"$bin/debfiles" -suites $suites -arch "$1" base-files usr/share/common-licenses/LGPL-2.1 >>"$out/debian.json"
}

go -C tools/image build -o "../../$bin/image" .
go build -o "$bin/debfiles" ./vmtests/debfiles
mkdir -p "$out"
: >"$out/debian.json"
images=()
for architecture in "$@"; do
	rm -f "$out/$architecture"/tracecore-*
	GOOS=linux GOARCH=$architecture go build -ldflags '-s -w' -o "$out/$architecture/tracecore" ./distro/cmd/tracecore
	helper "$architecture"
	images+=("$architecture=$out/$architecture/tracecore")
done
"$bin/image" -out "$out" -gpu "$out/debian.json" -version "$(sed -n 's/^appVersion: //p' charts/tracecore/Chart.yaml)" \
	-created "$(git log -1 --format=%ct)" "${images[@]}"
