// A libdcgm.so.4 whose host engine and GPUs a test scripts. It is compiled against
// the true headers and loaded as the true library is. Each call reads the file
// named by TRACECORE_DCGM_SCRIPT anew, so that a test can change the GPUs while
// they are read:
//
//	gpus 2                          how many there are (default 1)
//	engine down                     it cannot be reached; a connection to it breaks
//	engine fails                    an embedded one does not start
//	field 0 150 71                  a value of GPU 0; "field * …" of each
//	none 0 1004                     GPU 0 has no such value (blank)
//	old 1523                        the engine does not know the field
//	status 0 4                      what the engine holds GPU 0 for: 4 is lost
//	code 0 dcgmHealthCheck -33      what a function returns (for GPU 0, or * for all)
//	hang dcgmHealthCheck            the function never returns
//	crash dcgmHealthCheck           the function ends the process by SIGSEGV
//	xid 1 0 79                      Xid number 1, of GPU 0: 79
//	link 0 3 2                      link 3 of GPU 0 is down (2) or up (3)
//	health 0 16 20 page pending     watch 16 (memory) of GPU 0 fails (20) or warns (10)
//	policy 32                       conditions that an operator has set
//	violation 1 0 32 5              number 1: GPU 0 violates condition 32 with value 5
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dcgm_agent.h"
#include "dcgm_fields.h"
#include "dcgm_structs.h"

#define MAX_GPUS 16
#define MAX_LINES 1024
#define MAX_LINE 160
#define MAX_GROUPS 64
#define NO_GPU (-1)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[MAX_LINES][MAX_LINE];
static int line_count;

static int connected, embedded, health_watched;
static int last_xid, last_violation;
static unsigned int policies; // set by the client
static unsigned char watched[65536];
static int groups;
static unsigned short group_fields[MAX_GROUPS][128];
static int group_sizes[MAX_GROUPS];

static void read_script(void)
{
	const char *path = getenv("TRACECORE_DCGM_SCRIPT");
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
	return strcmp(word, "*") == 0 || (gpu != NO_GPU && atoi(word) == gpu);
}

static int says(const char *line)
{
	for (int i = 0; i < line_count; i++)
		if (strncmp(lines[i], line, strlen(line)) == 0)
			return 1;
	return 0;
}

static int gpu_count(void)
{
	int count = 1;

	for (int i = 0; i < line_count; i++)
		sscanf(lines[i], "gpus %d", &count);
	return count > MAX_GPUS ? MAX_GPUS : count;
}

// enter begins a call: reads the script, hangs or crashes if it says so, and
// returns what the function is to return.
static dcgmReturn_t enter(int gpu, const char *function)
{
	char who[16], what[96];
	int code, result = DCGM_ST_OK, hang = 0, crash = 0;

	pthread_mutex_lock(&lock);
	read_script();
	if (connected && !embedded && says("engine down"))
		result = DCGM_ST_CONNECTION_NOT_VALID;
	for (int i = 0; i < line_count; i++) {
		if (sscanf(lines[i], "hang %95s", what) == 1 && !strcmp(what, function))
			hang = 1;
		if (sscanf(lines[i], "crash %95s", what) == 1 && !strcmp(what, function))
			crash = 1;
		if (sscanf(lines[i], "code %15s %95s %d", who, what, &code) == 3 && is_gpu(who, gpu) && !strcmp(what, function))
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

static dcgmReturn_t leave(dcgmReturn_t result)
{
	pthread_mutex_unlock(&lock);
	return result;
}

#define ENTER(gpu)                                    \
	dcgmReturn_t result = enter((gpu), __func__); \
	if (result != DCGM_ST_OK)                     \
		return leave(result)

const char *errorString(dcgmReturn_t result)
{
	static char text[64];

	snprintf(text, sizeof(text), "scripted error %d", result);
	return text;
}

dcgmReturn_t dcgmInit(void)
{
	ENTER(NO_GPU);
	// What happened before this process began is not news.
	for (int i = 0, n; i < line_count; i++) {
		if (sscanf(lines[i], "xid %d", &n) == 1)
			last_xid = n;
		if (sscanf(lines[i], "violation %d", &n) == 1)
			last_violation = n;
	}
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmShutdown(void) { return DCGM_ST_OK; }

dcgmReturn_t dcgmConnect_v2(const char *address, dcgmConnectV2Params_t *params, dcgmHandle_t *handle)
{
	const char *wanted = getenv("TRACECORE_DCGM_ADDRESS");
	char got[256];

	ENTER(NO_GPU);
	snprintf(got, sizeof(got), "%s%s", params->addressIsUnixSocket ? "unix://" : "", address);
	if (says("engine down") || !wanted || strcmp(got, wanted) != 0)
		return leave(DCGM_ST_CONNECTION_NOT_VALID);
	*handle = 7, connected = 1;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmStartEmbedded(dcgmOperationMode_t mode, dcgmHandle_t *handle)
{
	ENTER(NO_GPU);
	if (mode != DCGM_OPERATION_MODE_AUTO || says("engine fails"))
		return leave(DCGM_ST_NVML_NOT_LOADED);
	*handle = 8, connected = embedded = 1;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmDisconnect(dcgmHandle_t handle) { (void)handle; return DCGM_ST_OK; }
dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t handle) { (void)handle; return DCGM_ST_OK; }

dcgmReturn_t dcgmHostengineVersionInfo(dcgmHandle_t handle, dcgmVersionInfo_t *info)
{
	ENTER(NO_GPU);
	(void)handle;
	snprintf(info->rawBuildInfoString, sizeof(info->rawBuildInfoString), "arch:x86_64;version:4.4.1;buildtype:Release");
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetAllSupportedDevices(dcgmHandle_t handle, unsigned int ids[DCGM_MAX_NUM_DEVICES], int *count)
{
	ENTER(NO_GPU);
	(void)handle;
	*count = gpu_count();
	for (int i = 0; i < *count; i++)
		ids[i] = i;
	return leave(DCGM_ST_OK);
}

static int status_of(int gpu)
{
	int status = DcgmEntityStatusOk, number, s;

	for (int i = 0; i < line_count; i++)
		if (sscanf(lines[i], "status %d %d", &number, &s) == 2 && number == gpu)
			status = s;
	return status;
}

dcgmReturn_t dcgmGetGpuStatus(dcgmHandle_t handle, unsigned int gpu, DcgmEntityStatus_t *status)
{
	ENTER((int)gpu);
	(void)handle;
	*status = status_of(gpu);
	return leave(DCGM_ST_OK);
}

// The values of a healthy H100, with their types as in the true library.
static const struct {
	unsigned short id;
	char type;
	const char *value;
} healthy[] = {
	{ DCGM_FI_SYSTEM_DRIVER_VERSION, DCGM_FT_STRING, "580.65.06" },
	{ DCGM_FI_DEV_GPU_NAME, DCGM_FT_STRING, "NVIDIA H100 80GB HBM3" },
	{ DCGM_FI_DEV_NVML_INDEX, DCGM_FT_INT64, NULL },
	{ DCGM_FI_DEV_BOARD_SERIAL, DCGM_FT_STRING, "1654223000001" },
	{ DCGM_FI_DEV_GPU_UUID, DCGM_FT_STRING, NULL },
	{ DCGM_FI_DEV_PCI_BUS_ID, DCGM_FT_STRING, NULL },
	{ DCGM_FI_CUDA_GPU_COMPUTE_CAPABILITY, DCGM_FT_INT64, "589824" },
	{ DCGM_FI_DEV_MIG_MODE, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_VBIOS_VERSION, DCGM_FT_STRING, "96.00.89.00.01" },
	{ DCGM_FI_DEV_SM_CLOCK, DCGM_FT_INT64, "1980" },
	{ DCGM_FI_DEV_MEM_CLOCK, DCGM_FT_INT64, "2619" },
	{ DCGM_FI_DEV_CLOCKS_EVENT_REASONS, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_MEMORY_TEMP_CELSIUS, DCGM_FT_INT64, "70" },
	{ DCGM_FI_DEV_GPU_TEMP_CELSIUS, DCGM_FT_INT64, "61" },
	{ DCGM_FI_DEV_BOARD_POWER_WATTS, DCGM_FT_DOUBLE, "650.5" },
	{ DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, DCGM_FT_INT64, "123456789" },
	{ DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS, DCGM_FT_DOUBLE, "700" },
	{ DCGM_FI_DEV_PCIE_REPLAY_TOTAL, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_GPU_UTIL_RATIO, DCGM_FT_INT64, "97" },
	{ DCGM_FI_DEV_MEM_COPY_UTIL, DCGM_FT_INT64, "42" },
	{ DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH, DCGM_FT_INT64, "16" },
	{ DCGM_FI_DEV_PCIE_LINK_WIDTH, DCGM_FT_INT64, "16" },
	{ DCGM_FI_DEV_POWER_VIOLATION, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_THERMAL_VIOLATION, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_FB_TOTAL, DCGM_FT_INT64, "81920" },
	{ DCGM_FI_DEV_FB_USED, DCGM_FT_INT64, "61440" },
	{ DCGM_FI_DEV_FB_FREE, DCGM_FT_INT64, "20480" },
	{ DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_ROW_REMAP_PENDING, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_GPU_RECOVERY_ACTION, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_L3_TOTAL, DCGM_FT_INT64, "0" },
	{ DCGM_FI_DEV_NVLINK_TX_THROUGHPUT_L3, DCGM_FT_INT64, "1000" },
	{ DCGM_FI_PROF_SM_UTIL_RATIO, DCGM_FT_DOUBLE, "0.91" },
	{ DCGM_FI_PROF_SM_OCCUPANCY_RATIO, DCGM_FT_DOUBLE, "0.33" },
	{ DCGM_FI_PROF_TENSOR_UTIL_RATIO, DCGM_FT_DOUBLE, "0.62" },
	{ DCGM_FI_PROF_DRAM_UTIL_RATIO, DCGM_FT_DOUBLE, "0.48" },
	{ DCGM_FI_PROF_PCIE_TX_BYTES, DCGM_FT_INT64, "2000000" },
	{ DCGM_FI_PROF_NVLINK_TX_BYTES, DCGM_FT_INT64, "3000000" },
};

#define HEALTHY (sizeof(healthy) / sizeof(healthy[0]))

static int known_field(unsigned short id)
{
	char line[32];

	snprintf(line, sizeof(line), "old %u\n", id);
	return !says(line);
}

dcgm_field_meta_p DcgmFieldGetById(unsigned short id)
{
	static dcgm_field_meta_t meta;

	enter(NO_GPU, __func__);
	memset(&meta, 0, sizeof(meta));
	if (known_field(id))
		meta = (dcgm_field_meta_t){ .fieldId = id, .fieldType = DCGM_FT_INT64 };
	leave(DCGM_ST_OK);
	return &meta;
}

dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t handle, int count, const unsigned short *ids, const char *name, dcgmFieldGrp_t *to)
{
	ENTER(NO_GPU);
	(void)handle, (void)name;
	if (groups == MAX_GROUPS || count < 1 || count > DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP)
		return leave(DCGM_ST_BADPARAM);
	for (int i = 0; i < count; i++)
		if (!known_field(ids[i]))
			return leave(DCGM_ST_UNKNOWN_FIELD);
	memcpy(group_fields[groups], ids, count * sizeof(*ids));
	group_sizes[groups] = count;
	*to = groups++;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmFieldGroupDestroy(dcgmHandle_t handle, dcgmFieldGrp_t group) { (void)handle, (void)group; return DCGM_ST_OK; }

dcgmReturn_t dcgmWatchFields(dcgmHandle_t handle, dcgmGpuGrp_t gpus, dcgmFieldGrp_t group, long long every, double age, int samples)
{
	ENTER(NO_GPU);
	(void)handle, (void)gpus, (void)age;
	if (every <= 0 || samples < 1)
		return leave(DCGM_ST_BADPARAM);
	for (int i = 0; i < group_sizes[group]; i++)
		watched[group_fields[group][i]] = 1;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmUpdateAllFields(dcgmHandle_t handle, int wait) { ENTER(NO_GPU); (void)handle, (void)wait; return leave(DCGM_ST_OK); }

// scripted finds what the script sets for a field; the last line wins.
static int scripted(int gpu, unsigned short id, char *to)
{
	char who[16], value[96];
	int found = 0;
	unsigned int field;

	for (int i = 0; i < line_count; i++) {
		if (sscanf(lines[i], "field %15s %u %95s", who, &field, value) == 3 && is_gpu(who, gpu) && field == id)
			strcpy(to, value), found = 1;
		if (sscanf(lines[i], "none %15s %u", who, &field) == 2 && is_gpu(who, gpu) && field == id)
			strcpy(to, ""), found = 1;
	}
	return found;
}

static void fill_value(int gpu, unsigned short id, dcgmFieldValue_v1 *v)
{
	char text[160] = "";
	char type = DCGM_FT_INT64;

	for (unsigned int i = 0; i < HEALTHY; i++)
		if (healthy[i].id == id) {
			type = healthy[i].type;
			snprintf(text, sizeof(text), "%s", healthy[i].value ? healthy[i].value : "");
		}
	if (id == DCGM_FI_DEV_NVML_INDEX)
		snprintf(text, sizeof(text), "%d", gpu);
	if (id == DCGM_FI_DEV_GPU_UUID)
		snprintf(text, sizeof(text), "GPU-00000000-0000-0000-0000-%012d", gpu);
	if (id == DCGM_FI_DEV_PCI_BUS_ID)
		snprintf(text, sizeof(text), "00000000:%02X:00.0", 0x1a + 0x10 * gpu);
	scripted(gpu, id, text);
	memset(v, 0, sizeof(*v));
	v->version = dcgmFieldValue_version1, v->fieldId = id, v->fieldType = type;
	v->status = !watched[id] ? DCGM_ST_NOT_WATCHED : status_of(gpu) == DcgmEntityStatusLost ? DCGM_ST_GPU_IS_LOST : DCGM_ST_OK;
	if (type == DCGM_FT_STRING)
		snprintf(v->value.str, sizeof(v->value.str), "%s", text[0] ? text : DCGM_STR_BLANK);
	else if (type == DCGM_FT_DOUBLE)
		v->value.dbl = text[0] ? atof(text) : DCGM_FP64_BLANK;
	else
		v->value.i64 = text[0] ? atoll(text) : DCGM_INT64_BLANK;
}

dcgmReturn_t dcgmEntityGetLatestValues(dcgmHandle_t handle, dcgm_field_entity_group_t entities, int gpu, unsigned short fields[],
				       unsigned int count, dcgmFieldValue_v1 values[])
{
	ENTER(gpu);
	(void)handle;
	if (entities != DCGM_FE_GPU)
		return leave(DCGM_ST_BADPARAM);
	for (unsigned int i = 0; i < count; i++)
		fill_value(gpu, fields[i], &values[i]);
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGetValuesSince_v2(dcgmHandle_t handle, dcgmGpuGrp_t gpus, dcgmFieldGrp_t group, long long since, long long *next,
				   dcgmFieldValueEntityEnumeration_f each, void *data)
{
	struct { int gpu, code; } found[MAX_LINES];
	int count = 0, number, gpu, code;
	dcgmFieldValue_v1 value = { .version = dcgmFieldValue_version1, .fieldId = DCGM_FI_DEV_XID_ERROR, .fieldType = DCGM_FT_INT64 };

	ENTER(NO_GPU);
	(void)handle, (void)gpus;
	if (group_sizes[group] != 1 || group_fields[group][0] != DCGM_FI_DEV_XID_ERROR || !watched[DCGM_FI_DEV_XID_ERROR])
		return leave(DCGM_ST_NOT_WATCHED);
	for (int i = 0; i < line_count; i++)
		if (sscanf(lines[i], "xid %d %d %d", &number, &gpu, &code) == 3 && number > last_xid) {
			last_xid = number;
			found[count].gpu = gpu, found[count++].code = code;
		}
	*next = since + 1;
	leave(DCGM_ST_OK);
	for (int i = 0; i < count; i++) {
		value.value.i64 = found[i].code;
		each(DCGM_FE_GPU, found[i].gpu, &value, 1, data);
	}
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmGetNvLinkLinkStatus(dcgmHandle_t handle, dcgmNvLinkStatus_v5 *status)
{
	int gpu, link, state;

	ENTER(NO_GPU);
	(void)handle;
	status->numGpus = gpu_count();
	status->numNvSwitches = 0;
	for (unsigned int i = 0; i < status->numGpus; i++) {
		status->gpus[i].entityId = i;
		for (int l = 0; l < DCGM_NVLINK_MAX_LINKS_PER_GPU; l++)
			status->gpus[i].linkState[l] = l < 18 ? DcgmNvLinkLinkStateUp : DcgmNvLinkLinkStateNotSupported;
	}
	for (int i = 0; i < line_count; i++)
		if (sscanf(lines[i], "link %d %d %d", &gpu, &link, &state) == 3)
			status->gpus[gpu].linkState[link] = state;
	return leave(DCGM_ST_OK);
}

#ifndef OLD // a library from before this function
dcgmReturn_t dcgmHealthSet(dcgmHandle_t handle, dcgmGpuGrp_t gpus, dcgmHealthSystems_t systems)
{
	ENTER(NO_GPU);
	(void)handle, (void)gpus;
	health_watched = systems == DCGM_HEALTH_WATCH_ALL;
	return leave(DCGM_ST_OK);
}
#endif

dcgmReturn_t dcgmHealthCheck(dcgmHandle_t handle, dcgmGpuGrp_t gpus, dcgmHealthResponse_t *to)
{
	int gpu, system, health;
	char text[128];

	ENTER(NO_GPU);
	(void)handle, (void)gpus;
	if (!health_watched || to->version != dcgmHealthResponse_version5)
		return leave(DCGM_ST_VER_MISMATCH);
	to->incidentCount = 0;
	for (int i = 0; i < line_count; i++) {
		if (sscanf(lines[i], "health %d %d %d %127[^\n]", &gpu, &system, &health, text) != 4)
			continue;
		dcgmIncidentInfo_t *incident = &to->incidents[to->incidentCount++];
		incident->system = system, incident->health = health;
		incident->entityInfo.entityGroupId = DCGM_FE_GPU, incident->entityInfo.entityId = gpu;
		snprintf(incident->error.msg, sizeof(incident->error.msg), "%s", text);
		to->overallHealth = health;
	}
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmGroupGetInfo(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmGroupInfo_t *to)
{
	ENTER(NO_GPU);
	(void)handle, (void)group;
	to->count = gpu_count();
	for (unsigned int i = 0; i < to->count; i++)
		to->entityList[i] = (dcgmGroupEntityPair_t){ DCGM_FE_GPU, i };
	return leave(DCGM_ST_OK);
}

static unsigned int policies_in_force(void)
{
	unsigned int all = policies, set;

	for (int i = 0; i < line_count; i++)
		if (sscanf(lines[i], "policy %u", &set) == 1)
			all |= set;
	return all;
}

dcgmReturn_t dcgmPolicyGet(dcgmHandle_t handle, dcgmGpuGrp_t group, int count, dcgmPolicy_t *to, dcgmStatus_t status)
{
	ENTER(NO_GPU);
	(void)handle, (void)group, (void)status;
	for (int i = 0; i < count; i++)
		to[i].condition = policies_in_force();
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmPolicySet(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmPolicy_t *policy, dcgmStatus_t status)
{
	ENTER(NO_GPU);
	(void)handle, (void)group, (void)status;
	if (policy->action != DCGM_POLICY_ACTION_NONE)
		return leave(DCGM_ST_BADPARAM);
	policies = policy->condition;
	return leave(DCGM_ST_OK);
}

// Who registered for which conditions.
static struct { unsigned int conditions; fpRecvUpdates callback; uint64_t data; } listeners[8];
static int listener_count;

static void say(int gpu, unsigned int condition, unsigned int value, fpRecvUpdates callback, uint64_t data)
{
	dcgmPolicyCallbackResponse_t r = { .version = dcgmPolicyCallbackResponse_version, .condition = condition, .gpuId = gpu };

	switch (condition) {
	case DCGM_POLICY_COND_DBE:
		r.val.dbe.numerrors = value, r.val.dbe.location = DEVICE;
		break;
	case DCGM_POLICY_COND_THERMAL:
		r.val.thermal.thermalViolation = value;
		break;
	case DCGM_POLICY_COND_NVLINK:
		r.val.nvlink.counter = value, r.val.nvlink.fieldId = DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL;
		break;
	}
	callback(&r, data);
}

static void *notify(void *unused)
{
	int number, gpu;
	unsigned int condition, value;

	for (;; usleep(5000)) {
		pthread_mutex_lock(&lock);
		read_script();
		for (int i = 0; i < line_count; i++) {
			if (sscanf(lines[i], "violation %d %d %u %u", &number, &gpu, &condition, &value) != 4 || number <= last_violation)
				continue;
			last_violation = number;
			for (int l = 0; l < listener_count; l++)
				if (listeners[l].conditions & condition & policies_in_force())
					say(gpu, condition, value, listeners[l].callback, listeners[l].data);
		}
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

dcgmReturn_t dcgmPolicyRegister_v2(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmPolicyCondition_t conditions, fpRecvUpdates callback, uint64_t data)
{
	pthread_t thread;

	ENTER(NO_GPU);
	(void)handle, (void)group;
	if (listener_count == 8)
		return leave(DCGM_ST_MAX_LIMIT);
	if (listener_count == 0)
		pthread_create(&thread, NULL, notify, NULL);
	listeners[listener_count].conditions = conditions;
	listeners[listener_count].callback = callback;
	listeners[listener_count++].data = data;
	return leave(DCGM_ST_OK);
}

dcgmReturn_t dcgmPolicyUnregister(dcgmHandle_t handle, dcgmGpuGrp_t group, dcgmPolicyCondition_t conditions) { (void)handle, (void)group, (void)conditions; return DCGM_ST_OK; }
