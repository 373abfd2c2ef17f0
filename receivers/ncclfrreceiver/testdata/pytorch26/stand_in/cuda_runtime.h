// Stands for CUDA's: FlightRecorder.cpp includes it and uses nothing of it.
#pragma once
