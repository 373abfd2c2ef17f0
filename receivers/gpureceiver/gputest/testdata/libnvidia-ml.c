// A libnvidia-ml.so.1 whose GPUs a test scripts. It is compiled against the true
// nvml.h and loaded as the true library is. Before each call it reads the file
// named by TRACECORE_NVML_SCRIPT, so that a test can change the GPUs while they
// are read:
//
//	gpus 2                            how many there are (default 1)
//	init 9                            what nvmlInit returns
//	set 0 temperature_gpu 71          a number of GPU 0; "set * …" of each
//	none 0 pcie_width                 GPU 0 has no such number (not supported)
//	code 0 nvmlDeviceGetPowerUsage 15 what a function returns for GPU 0; "code 0 * 15": each function
//	hang nvmlDeviceGetPowerUsage      the function never returns
//	crash nvmlDeviceGetPowerUsage     the function ends the process by SIGSEGV
//	event 1 0 8 79                    event number 1, of GPU 0: type 8 (an Xid), data 79
//	process 0 4711 1048576            a process of GPU 0 and its memory in bytes
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>

#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#include "nvml.h"

#define MAX_GPUS 16
#define MAX_LINES 4096
#define MAX_LINE 160

struct nvmlDevice_st { int number; };
static struct nvmlDevice_st devices[MAX_GPUS];
struct nvmlEventSet_st { int unused; };
static struct nvmlEventSet_st set;
static int last_event;

// The script, read anew by each call; a lock for the thread that waits for events.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[MAX_LINES][MAX_LINE];
static int line_count;

static void read_script(void)
{
	const char *path = getenv("TRACECORE_NVML_SCRIPT");
	FILE *f = path ? fopen(path, "r") : NULL;

	line_count = 0;
	if (!f)
		return;
	while (line_count < MAX_LINES && fgets(lines[line_count], MAX_LINE, f))
		line_count++;
	fclose(f);
}

static int is_gpu(const char *word, int gpu)
{
	return strcmp(word, "*") == 0 || atoi(word) == gpu;
}

// number finds what the script sets; the last line wins.
static nvmlReturn_t number(int gpu, const char *name, unsigned long long otherwise, unsigned long long *value)
{
	char who[16], what[96];
	unsigned long long v;

	*value = otherwise;
	for (int i = 0; i < line_count; i++) {
		if (sscanf(lines[i], "set %15s %95s %llu", who, what, &v) == 3 && is_gpu(who, gpu) && !strcmp(what, name))
			*value = v;
		else if (sscanf(lines[i], "none %15s %95s", who, what) == 2 && is_gpu(who, gpu) && !strcmp(what, name))
			return NVML_ERROR_NOT_SUPPORTED;
	}
	return NVML_SUCCESS;
}

static unsigned long long plain(int gpu, const char *name, unsigned long long otherwise)
{
	unsigned long long v;

	number(gpu, name, otherwise, &v);
	return v;
}

// enter begins a call: reads the script, hangs or crashes if it says so, and
// returns what the function is to return.
static nvmlReturn_t enter(int gpu, const char *function)
{
	char who[16], what[96];
	int code, result = NVML_SUCCESS, hang = 0, crash = 0;

	pthread_mutex_lock(&lock);
	read_script();
	for (int i = 0; i < line_count; i++) {
		if (sscanf(lines[i], "hang %95s", what) == 1 && !strcmp(what, function))
			hang = 1;
		if (sscanf(lines[i], "crash %95s", what) == 1 && !strcmp(what, function))
			crash = 1;
		if (sscanf(lines[i], "code %15s %95s %d", who, what, &code) == 3 && is_gpu(who, gpu) &&
		    (!strcmp(what, function) || !strcmp(what, "*")))
			result = code;
	}
	if (hang || crash)
		pthread_mutex_unlock(&lock);
	while (hang)
		pause();
	if (crash)
		raise(SIGSEGV);
	return result;
}

static nvmlReturn_t leave(nvmlReturn_t result)
{
	pthread_mutex_unlock(&lock);
	return result;
}

#define GPU device.handle->number
#define ENTER(gpu)                                    \
	nvmlReturn_t result = enter((gpu), __func__); \
	if (result != NVML_SUCCESS)                   \
		return leave(result)

nvmlReturn_t nvmlInit_v2(void)
{
	ENTER(-1);
	for (int i = 0; i < MAX_GPUS; i++)
		devices[i].number = i;
	for (int i = 0; i < line_count; i++)
		if (sscanf(lines[i], "init %d", (int *)&result) == 1)
			break;
	return leave(result);
}

nvmlReturn_t nvmlInit(void) { return nvmlInit_v2(); }
nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t r) { (void)r; return "scripted"; }

static nvmlReturn_t text(char *to, unsigned int length, const char *what, int gpu)
{
	snprintf(to, length, what, gpu);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *to, unsigned int length) { ENTER(-1); return text(to, length, "580.65.06", 0); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *to, unsigned int length) { ENTER(-1); return text(to, length, "13.580.65.06", 0); }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	ENTER(-1);
	*count = 1;
	for (int i = 0; i < line_count; i++)
		sscanf(lines[i], "gpus %u", count);
	if (*count > MAX_GPUS)
		*count = MAX_GPUS;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	ENTER((int)index);
	device->handle = &devices[index];
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	ENTER(GPU);
	memset(pci, 0, sizeof(*pci));
	pci->bus = 0x1a + 0x10 * GPU;
	snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", pci->bus);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *to, unsigned int length) { ENTER(GPU); return text(to, length, "GPU-00000000-0000-0000-0000-%012d", GPU); }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *to, unsigned int length) { ENTER(GPU); return text(to, length, "NVIDIA H100 80GB HBM3", GPU); }
nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *to, unsigned int length) { ENTER(GPU); return text(to, length, "16542230%05d", GPU); }
nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *to, unsigned int length) { ENTER(GPU); return text(to, length, "96.00.89.00.01", GPU); }

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	ENTER(GPU);
	*major = 9, *minor = 0;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *mode, unsigned int *pending)
{
	ENTER(GPU);
	*mode = *pending = plain(GPU, "mig_mode", 0);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *u)
{
	ENTER(GPU);
	u->gpu = plain(GPU, "utilization_gpu", 97);
	u->memory = plain(GPU, "utilization_memory", 42);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *m)
{
	ENTER(GPU);
	m->total = plain(GPU, "memory_total", 85899345920ULL);
	m->used = plain(GPU, "memory_used", 64424509440ULL);
	m->free = m->total - m->used;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *m)
{
	ENTER(GPU);
	m->total = plain(GPU, "memory_total", 85899345920ULL);
	m->used = plain(GPU, "memory_used", 64424509440ULL);
	m->reserved = plain(GPU, "memory_reserved", 536870912);
	m->free = m->total - m->used - m->reserved;
	return leave(NVML_SUCCESS);
}

// NUMBER is a function that gives one number of type type.
#define NUMBER(function, type, name, otherwise)                       \
	nvmlReturn_t function(nvmlDevice_t device, type *to)          \
	{                                                             \
		ENTER(GPU);                                           \
		unsigned long long v;                                 \
		result = number(GPU, name, otherwise, &v);            \
		*to = v;                                              \
		return leave(result);                                 \
	}

NUMBER(nvmlDeviceGetPowerUsage, unsigned int, "power_usage", 650000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, "power_limit", 700000)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, "energy", 123456789)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "throttle_active", 0)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, "pcie_width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, "pcie_width_max", 16)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, "pcie_generation", 5)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, "pcie_generation_max", 5)
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned int, "pcie_replays", 0)

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *to)
{
	ENTER(GPU);
	(void)sensor;
	*to = plain(GPU, "temperature_gpu", 61);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t which, unsigned int *to)
{
	ENTER(GPU);
	*to = which == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN ? 92 : 89;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *to)
{
	ENTER(GPU);
	*to = type == NVML_CLOCK_MEM ? 2619 : plain(GPU, "clock_sm", 1980);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *to)
{
	ENTER(GPU);
	*to = type == NVML_CLOCK_MEM ? 2619 : 1980;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *to)
{
	ENTER(GPU);
	*to = plain(GPU, counter == NVML_PCIE_UTIL_TX_BYTES ? "pcie_transmit" : "pcie_receive", 1000000);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected, unsigned int *pending, unsigned int *failed)
{
	ENTER(GPU);
	*corrected = plain(GPU, "remapped_corrected", 0);
	*uncorrected = plain(GPU, "remapped_uncorrected", 0);
	*pending = plain(GPU, "remap_pending", 0);
	*failed = plain(GPU, "remap_failed", 0);
	return leave(NVML_SUCCESS);
}

static const char *ecc_name(nvmlMemoryErrorType_t type, nvmlEccCounterType_t lifetime, const char *where, char *to)
{
	sprintf(to, "ecc_%s_%s_%s", type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? "corrected" : "uncorrected",
		lifetime == NVML_VOLATILE_ECC ? "volatile" : "aggregate", where);
	return to;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t lifetime, unsigned long long *to)
{
	ENTER(GPU);
	char name[64];

	return leave(number(GPU, ecc_name(type, lifetime, "all", name), 0, to));
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t lifetime, nvmlMemoryLocation_t where, unsigned long long *to)
{
	ENTER(GPU);
	char name[64];

	return leave(number(GPU, ecc_name(type, lifetime, where == NVML_MEMORY_LOCATION_DRAM ? "dram" : "sram", name), 0, to));
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *to)
{
	ENTER(GPU);
	char name[64];

	if (link >= plain(GPU, "nvlink_count", 18))
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	sprintf(name, "nvlink_state_%u", link);
	*to = plain(GPU, name, 1);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter, unsigned long long *to)
{
	ENTER(GPU);
	char name[64];

	sprintf(name, "nvlink_error_%u_%u", link, counter);
	return leave(number(GPU, name, 0, to));
}

// Fields: "set 0 field_74 5", of a link "set 0 field_138_3 5". One that is not set
// is not supported, but for those of a healthy H100.
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
	ENTER(GPU);
	for (int i = 0; i < count; i++) {
		nvmlFieldValue_t *v = &values[i];
		unsigned long long otherwise = ~0ULL, n;
		char name[64];

		if (v->fieldId == NVML_FI_DEV_NVLINK_LINK_COUNT)
			otherwise = plain(GPU, "nvlink_count", 18);
		if (v->fieldId == NVML_FI_DEV_MEMORY_TEMP)
			otherwise = 70;
		if (v->fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION || (v->fieldId >= 74 && v->fieldId <= 79) ||
		    (v->fieldId >= 269 && v->fieldId <= 271))
			otherwise = 0;
		if (v->fieldId == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX || v->fieldId == NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX) {
			sprintf(name, "field_%u_%u", v->fieldId, v->scopeId);
			otherwise = 0;
		} else {
			sprintf(name, "field_%u", v->fieldId);
		}
		v->nvmlReturn = number(GPU, name, otherwise, &n);
		if (n == ~0ULL)
			v->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		v->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
		v->value.ullVal = n;
	}
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	ENTER(GPU);
	unsigned int found = 0, pid;
	unsigned long long memory;
	int gpu;

	for (int i = 0; i < line_count; i++) {
		if (sscanf(lines[i], "process %d %u %llu", &gpu, &pid, &memory) != 3 || gpu != GPU)
			continue;
		if (found < *count)
			infos[found] = (nvmlProcessInfo_t){.pid = pid, .usedGpuMemory = memory, .gpuInstanceId = ~0U, .computeInstanceId = ~0U};
		found++;
	}
	result = found > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
	*count = found;
	return leave(result);
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *to) { ENTER(-1); to->handle = &set; return leave(NVML_SUCCESS); }
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t s) { (void)s; return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	ENTER(GPU);
	*types = plain(GPU, "events", nvmlEventTypeAll);
	return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t s)
{
	ENTER(GPU);
	(void)types, (void)s;
	return leave(NVML_SUCCESS);
}

// next_event finds the first event that was not delivered.
static int next_event(nvmlEventData_t *data)
{
	unsigned long long type, value;
	int sequence, gpu;

	for (int i = 0; i < line_count; i++) {
		if (sscanf(lines[i], "event %d %d %llu %llu", &sequence, &gpu, &type, &value) != 4 || sequence <= last_event)
			continue;
		last_event = sequence;
		*data = (nvmlEventData_t){.device = {&devices[gpu]}, .eventType = type, .eventData = value,
					  .gpuInstanceId = ~0U, .computeInstanceId = ~0U};
		return 1;
	}
	return 0;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t s, nvmlEventData_t *data, unsigned int timeout_ms)
{
	(void)s;
	for (unsigned int waited = 0; waited < timeout_ms; waited += 5) {
		ENTER(-1);
		int found = next_event(data);

		leave(NVML_SUCCESS);
		if (found)
			return NVML_SUCCESS;
		usleep(5000);
	}
	return NVML_ERROR_TIMEOUT;
}
