// Stands for the process group of NCCL: what FlightRecorder.cpp needs of it.
#pragma once
#include <string>
#include <torch/csrc/distributed/c10d/TraceUtils.h>

namespace c10d {

std::string dump_nccl_trace(bool collectives, bool stacks, bool onlyActive);
std::string dump_nccl_trace_json(bool collectives, bool onlyActive);

} // namespace c10d
