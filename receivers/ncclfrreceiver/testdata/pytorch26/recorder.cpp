// The Flight Recorder of PyTorch 2.6.0 as a Python module, for a machine without
// a GPU. FlightRecorder.cpp and its header are PyTorch's, unchanged: what it
// keeps, how it ends an entry and what it writes are theirs. In 2.6 it is built
// for NCCL alone; the headers in stand_in/ stand for CUDA and NCCL, and
// train.py calls it where ProcessGroupNCCL.cpp of 2.6.0 does.
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/FlightRecorder.cpp>
#include <torch/extension.h>

namespace {

using c10d::FlightRecorder;

// Work is what ProcessGroupNCCL::WorkNCCL keeps for the recorder.
struct Work {
  FlightRecorder::Event start, end;
  std::optional<size_t> id;
};

struct Group {
  size_t id;
  std::tuple<std::string, std::string> name;
  std::shared_ptr<c10d::ProcessGroupStatus> status =
      std::make_shared<c10d::ProcessGroupStatus>();
};

std::unique_ptr<Work> record(
    Group& g,
    size_t collective,
    size_t p2p,
    size_t op,
    const std::string& title,
    const std::vector<at::Tensor>& inputs,
    const std::vector<at::Tensor>& outputs,
    bool isP2P) {
  auto work = std::make_unique<Work>();
  work->id = FlightRecorder::get()->record(
      g.id, g.name, collective, p2p, op, title, inputs, outputs, &work->start,
      &work->end, std::chrono::minutes(10), g.status, isP2P);
  return work;
}

} // namespace

namespace c10d {

std::string dump_nccl_trace(bool collectives, bool stacks, bool onlyActive) {
  return FlightRecorder::get()->dump(
      std::nullopt, collectives, stacks, onlyActive);
}

std::string dump_nccl_trace_json(bool collectives, bool onlyActive) {
  return FlightRecorder::get()->dump_json(
      std::nullopt, collectives, onlyActive);
}

} // namespace c10d

PYBIND11_MODULE(recorder, m) {
  py::class_<Work>(m, "Work")
      .def("started", [](Work& w) { w.start.happen(); })
      .def("ended", [](Work& w) { w.end.happen(); })
      .def("retire", [](Work& w) { FlightRecorder::get()->retire_id(w.id); });
  py::class_<Group>(m, "Group")
      .def(py::init([](size_t id, std::string name, std::string desc) {
        return Group{id, {name, desc}};
      }))
      .def(
          "ranks",
          [](Group& g, std::vector<uint64_t> ranks) {
            FlightRecorder::get()->record_pg_ranks(g.name, ranks);
          })
      .def("enqueued", [](Group& g, int64_t n) { g.status->lastEnqueuedSeq = n; })
      .def("started", [](Group& g, int64_t n) { g.status->lastStartedSeq = n; })
      .def("completed", [](Group& g, int64_t n) { g.status->lastCompletedSeq = n; });
  m.def("record", record);
  m.def("dump", [] { return py::bytes(c10d::dump_nccl_trace(true, true, false)); });
  m.def("dump_json", [] { return py::bytes(c10d::dump_nccl_trace_json(true, false)); });
}
