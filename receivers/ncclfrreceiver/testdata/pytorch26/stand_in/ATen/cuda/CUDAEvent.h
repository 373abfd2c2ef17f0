// Stands for an event of a CUDA stream: train.py says when it has happened.
#pragma once
#include <atomic>
#include <chrono>

namespace at::cuda {

struct CUDAEvent {
  void happen() {
    if (!happened_.exchange(true)) {
      at_ = std::chrono::steady_clock::now();
    }
  }
  bool query() const {
    return happened_;
  }
  float elapsed_time(const CUDAEvent& other) const {
    return std::chrono::duration<float, std::milli>(other.at_ - at_).count();
  }

 private:
  std::atomic<bool> happened_{false};
  std::chrono::steady_clock::time_point at_;
};

} // namespace at::cuda
