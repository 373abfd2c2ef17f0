#!/bin/sh
# Makes the dumps of PyTorch 2.6.0: run it as root in a Debian 13 (trixie) root file
# system, in this folder, with deb-src lines in its apt sources. $1 is where they go.
set -eu
here=$(pwd) out=$1
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends python3-torch libtorch-dev python3-dev pybind11-dev nlohmann-json3-dev g++ dpkg-dev
work=$(mktemp -d) && cd "$work"
apt-get source --download-only pytorch=2.6.0+dfsg-7
tar xf pytorch_2.6.0+dfsg.orig.tar.xz --strip-components=1 --wildcards \
  '*/torch/csrc/distributed/c10d/FlightRecorder.cpp' '*/c10d/control_plane/*.hpp' '*/tools/flight_recorder/*'
# All other headers are those of libtorch-dev.
g++ -std=c++17 -O1 -shared -fPIC -DTORCH_EXTENSION_NAME=recorder -o recorder.so "$here/recorder.cpp" \
  -I"$here/stand_in" -I"$work" $(python3-config --includes) -I/usr/include/torch/csrc/api/include \
  -ltorch_python -ltorch -ltorch_cpu -lc10
mkdir -p /srv/train && cp "$here/train.py" recorder.so /srv/train/ && cd /srv/train

job() { # scenario, entries, extra environment
  scenario=$1 entries=$2
  shift 2
  mkdir -p "$out/pytorch26_$scenario"
  for rank in 0 1 2 3; do
    env RANK=$rank WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29526 USE_LIBUV=0 GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1 \
      TORCH_NCCL_TRACE_BUFFER_SIZE="$entries" "$@" timeout --kill-after=1 60 python3 train.py "$scenario" "$out/pytorch26_$scenario" &
  done
  wait
}
job healthy 20
job mismatched_operation 20
job mismatched_size 20 DUMP_AFTER=25
job mismatched_size_one_aborted 20
job two_behind 6
job p2p_only 20
job never_dumps 20
job hang_inside_a_pipeline 20

# The analyzer of 2.6.0 does not load in this Python (3.13, PEP 709) as it is.
cd "$work" && sed -i 's/in globals().values()/in list(globals().values())/' tools/flight_recorder/components/types.py
PYTHONPATH=. python3 "$here/analyze.py" "$out" "$here/analyzer.json"
