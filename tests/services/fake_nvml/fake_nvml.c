/* A stand-in for NVIDIA's management library, so small that tests build it.
 *
 * What it answers stands in the file that FAKE_NVML names, read anew at every call, one value a line:
 *     count 2
 *     0.name NVIDIA H100 80GB HBM3
 *     0.power_mw 350000
 * A value that is missing is "not supported" by that card. `N.error CODE` has every question to card N fail
 * with that code of NVML, and `init CODE` the library itself. Xids are told once each, in their order.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK 0
#define INVALID 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define TOO_SMALL 7
#define TIMEOUT 10
#define MAX_GPUS 16
#define EXPORT __attribute__((visibility("default")))

typedef struct { int index; } gpu_t;
static gpu_t gpus[MAX_GPUS];
static int xids_told[MAX_GPUS];
static int events;

static int read_text(const char *key, char *value, size_t size) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    size_t length = strlen(key);
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) || line[length] != ' ') continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(value, size, "%s", line + length + 1);
        found = 1;
    }
    if (file) fclose(file);
    return found;
}

static int read_number(const char *key, unsigned long long *value) {
    char text[512];
    if (!read_text(key, text, sizeof text)) return 0;
    *value = strtoull(text, NULL, 0);
    return 1;
}

static const char *key_of(gpu_t *gpu, const char *name) {
    static __thread char key[96];
    snprintf(key, sizeof key, "%d.%s", gpu->index, name);
    return key;
}

static int state_of(gpu_t *gpu) {
    unsigned long long code;
    return read_number(key_of(gpu, "error"), &code) ? (int)code : OK;
}

static int ask(gpu_t *gpu, const char *name, unsigned long long *value) {
    int state = state_of(gpu);
    if (state) return state;
    return read_number(key_of(gpu, name), value) ? OK : NOT_SUPPORTED;
}

static int ask_uint(gpu_t *gpu, const char *name, unsigned int *value) {
    unsigned long long wide;
    int result = ask(gpu, name, &wide);
    if (!result) *value = (unsigned int)wide;
    return result;
}

static int ask_text(gpu_t *gpu, const char *name, char *value, unsigned int size) {
    int state = state_of(gpu);
    if (state) return state;
    return read_text(key_of(gpu, name), value, size) ? OK : NOT_SUPPORTED;
}

EXPORT int nvmlInitWithFlags(unsigned int flags) {
    unsigned long long code = 0;
    (void)flags;
    read_number("init", &code);
    return (int)code;
}
EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT int nvmlShutdown(void) { return OK; }
EXPORT const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "fake error"; }
EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned int size) {
    snprintf(version, size, "580.00");
    return OK;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned int *count) {
    unsigned long long value = 0;
    read_number("count", &value);
    *count = (unsigned int)value;
    return OK;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, gpu_t **gpu) {
    unsigned int count;
    nvmlDeviceGetCount_v2(&count);
    if (index >= count || index >= MAX_GPUS) return INVALID;
    gpus[index].index = (int)index;
    *gpu = &gpus[index];
    return state_of(*gpu);
}
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, gpu_t **gpu) {
    unsigned int count;
    char own[96];
    nvmlDeviceGetCount_v2(&count);
    for (unsigned int index = 0; index < count && index < MAX_GPUS; index++) {
        gpus[index].index = (int)index;
        if (!read_text(key_of(&gpus[index], "uuid"), own, sizeof own) || strcmp(own, uuid)) continue;
        *gpu = &gpus[index];
        return state_of(*gpu);
    }
    return NOT_FOUND;
}
EXPORT int nvmlDeviceGetName(gpu_t *gpu, char *name, unsigned int size) { return ask_text(gpu, "name", name, size); }
EXPORT int nvmlDeviceGetUUID(gpu_t *gpu, char *uuid, unsigned int size) {
    /* Also of a lost card: whose error it was is known. */
    return read_text(key_of(gpu, "uuid"), uuid, size) ? OK : NOT_SUPPORTED;
}
EXPORT int nvmlDeviceGetIndex(gpu_t *gpu, unsigned int *index) {
    *index = (unsigned int)gpu->index;
    return state_of(gpu);
}
EXPORT int nvmlDeviceGetMinorNumber(gpu_t *gpu, unsigned int *number) { return nvmlDeviceGetIndex(gpu, number); }

typedef struct { unsigned long long total, free, used; } memory_t;
EXPORT int nvmlDeviceGetMemoryInfo(gpu_t *gpu, memory_t *memory) {
    int result = ask(gpu, "memory_bytes", &memory->total);
    if (result) return result;
    memory->used = 0;
    read_number(key_of(gpu, "memory_used_bytes"), &memory->used);
    memory->free = memory->total - memory->used;
    return OK;
}
typedef struct { unsigned int gpu, memory; } utilisation_t;
EXPORT int nvmlDeviceGetUtilizationRates(gpu_t *gpu, utilisation_t *rates) {
    rates->memory = 0;
    return ask_uint(gpu, "busy_percent", &rates->gpu);
}
EXPORT int nvmlDeviceGetPowerUsage(gpu_t *gpu, unsigned int *mw) { return ask_uint(gpu, "power_mw", mw); }
EXPORT int nvmlDeviceGetTotalEnergyConsumption(gpu_t *gpu, unsigned long long *mj) {
    return ask(gpu, "energy_mj", mj);
}
EXPORT int nvmlDeviceGetTemperature(gpu_t *gpu, int sensor, unsigned int *degrees) {
    (void)sensor;
    return ask_uint(gpu, "temperature_c", degrees);
}
EXPORT int nvmlDeviceGetClockInfo(gpu_t *gpu, int kind, unsigned int *mhz) {
    return ask_uint(gpu, kind == 1 ? "clock_mhz" : "memory_clock_mhz", mhz);
}
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(gpu_t *gpu, unsigned long long *reasons) {
    return ask(gpu, "slowed_bits", reasons);
}
EXPORT int nvmlDeviceGetTotalEccErrors(gpu_t *gpu, int kind, int counter, unsigned long long *errors) {
    (void)counter;
    return ask(gpu, kind ? "ecc_uncorrected" : "ecc_corrected", errors);
}
EXPORT int nvmlDeviceGetPcieThroughput(gpu_t *gpu, int counter, unsigned int *kib) {
    return ask_uint(gpu, counter ? "pcie_received_kib_per_s" : "pcie_sent_kib_per_s", kib);
}

typedef struct {
    unsigned int field, scope;
    long long timestamp, latency;
    unsigned int type, result;
    unsigned long long value;
} field_t;
EXPORT int nvmlDeviceGetFieldValues(gpu_t *gpu, int count, field_t *fields) {
    int state = state_of(gpu);
    if (state) return state;
    for (int i = 0; i < count; i++) {
        const char *name = fields[i].field == 197   ? "pcie_sent_bytes"
                           : fields[i].field == 198 ? "pcie_received_bytes"
                           : fields[i].field == 138 ? "nvlink_sent_kib"
                           : fields[i].field == 139 ? "nvlink_received_kib"
                                                    : "unknown";
        fields[i].type = 3; /* unsigned long long */
        fields[i].result = (unsigned int)ask(gpu, name, &fields[i].value);
    }
    return OK;
}

typedef struct {
    char legacy[16];
    unsigned int domain, bus, device, id, subsystem;
    char bus_id[32];
} pci_t;
EXPORT int nvmlDeviceGetPciInfo_v3(gpu_t *gpu, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned int)gpu->index;
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", gpu->index);
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", gpu->index);
    return state_of(gpu);
}
/* `N.nvlinks 1 1 switch`: where each NVLink of a card leads, by the number of the other card. */
static int end_of_link(gpu_t *gpu, unsigned int link, char *end, size_t size) {
    char all[256];
    unsigned int place = 0;
    if (!read_text(key_of(gpu, "nvlinks"), all, sizeof all)) return NOT_SUPPORTED;
    for (char *word = strtok(all, " "); word; word = strtok(NULL, " "), place++) {
        if (place != link) continue;
        snprintf(end, size, "%s", word);
        return OK;
    }
    return INVALID;
}
EXPORT int nvmlDeviceGetNvLinkState(gpu_t *gpu, unsigned int link, unsigned int *active) {
    char end[16];
    int result = end_of_link(gpu, link, end, sizeof end);
    *active = !result && strcmp(end, "off");
    return result;
}
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(gpu_t *gpu, unsigned int link, unsigned int *type) {
    char end[16];
    int result = end_of_link(gpu, link, end, sizeof end);
    *type = !result && !strcmp(end, "switch") ? 2 : 0;
    return result;
}
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu_t *gpu, unsigned int link, pci_t *pci) {
    char end[16];
    int result = end_of_link(gpu, link, end, sizeof end);
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", atoi(end));
    return result;
}
/* `N.topology LEVEL` to all others, or `N.topology LEVEL LEVEL ...` to each card. */
EXPORT int nvmlDeviceGetTopologyCommonAncestor(gpu_t *one, gpu_t *other, unsigned int *level) {
    char all[256];
    int result = ask_text(one, "topology", all, sizeof all), place = 0;
    if (result) return result;
    for (char *word = strtok(all, " "); word; word = strtok(NULL, " "), place++)
        if (!place || place == other->index) *level = (unsigned int)atoi(word);
    return OK;
}
/* `N.cpus MASK`: the first 64 CPUs that are near, as a number. */
EXPORT int nvmlDeviceGetCpuAffinity(gpu_t *gpu, unsigned int size, unsigned long *set) {
    unsigned long long mask;
    int result = ask(gpu, "cpus", &mask);
    if (result) return result;
    memset(set, 0, size * sizeof *set);
    set[0] = (unsigned long)mask;
    return OK;
}

/* `N.power_limit_mw`, until a limit is set, which every process reads from a file of the card. */
static void limit_path(gpu_t *gpu, char *path, size_t size) {
    snprintf(path, size, "%s.limit_of_%d", getenv("FAKE_NVML"), gpu->index);
}
EXPORT int nvmlDeviceGetPowerManagementLimit(gpu_t *gpu, unsigned int *limit_mw) {
    char path[512];
    limit_path(gpu, path, sizeof path);
    FILE *file = fopen(path, "r");
    int was_set = file && fscanf(file, "%u", limit_mw) == 1;
    if (file) fclose(file);
    return was_set ? state_of(gpu) : ask_uint(gpu, "power_limit_mw", limit_mw);
}
EXPORT int nvmlDeviceGetPowerManagementDefaultLimit(gpu_t *gpu, unsigned int *limit_mw) {
    return ask_uint(gpu, "power_limit_mw", limit_mw);
}
EXPORT int nvmlDeviceGetPowerManagementLimitConstraints(gpu_t *gpu, unsigned int *least, unsigned int *most) {
    int result = ask_uint(gpu, "power_least_mw", least);
    return result ? result : ask_uint(gpu, "power_limit_mw", most);
}
/* `N.power_set CODE` is the answer to changing it, such as 4: no permission. */
EXPORT int nvmlDeviceSetPowerManagementLimit(gpu_t *gpu, unsigned int limit_mw) {
    unsigned long long code = 0;
    char path[512], unfinished[544];
    read_number(key_of(gpu, "power_set"), &code);
    if (code) return (int)code;
    limit_path(gpu, path, sizeof path);
    snprintf(unfinished, sizeof unfinished, "%s.%d", path, (int)getpid());
    FILE *file = fopen(unfinished, "w");
    if (!file) return INVALID;
    fprintf(file, "%u\n", limit_mw);
    fclose(file);
    rename(unfinished, path);
    return state_of(gpu);
}

typedef struct {
    unsigned int pid;
    unsigned long long used;
    unsigned int instance, compute_instance;
} process_t;
/* `N.processes PID BYTES PID BYTES ...` */
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(gpu_t *gpu, unsigned int *count, process_t *found) {
    char all[256];
    unsigned int place = 0, room = *count;
    int state = state_of(gpu);
    if (state) return state;
    if (!read_text(key_of(gpu, "processes"), all, sizeof all)) return NOT_SUPPORTED;
    for (char *word = strtok(all, " "); word; word = strtok(NULL, " "), place++) {
        unsigned int pid = (unsigned int)strtoul(word, NULL, 10);
        char *bytes = strtok(NULL, " ");
        if (place < room && found) found[place] = (process_t){pid, bytes ? strtoull(bytes, NULL, 10) : 0, 0, 0};
    }
    *count = place;
    return place > room ? TOO_SMALL : OK;
}
EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(gpu_t *gpu, unsigned int *count, process_t *found) {
    (void)found;
    *count = 0;
    return state_of(gpu);
}

typedef struct {
    gpu_t *gpu;
    unsigned long long type, data;
    unsigned int instance, compute_instance;
} event_t;
EXPORT int nvmlEventSetCreate(void **set) {
    *set = &events;
    return OK;
}
EXPORT int nvmlEventSetFree(void *set) {
    (void)set;
    return OK;
}
EXPORT int nvmlDeviceRegisterEvents(gpu_t *gpu, unsigned long long types, void *set) {
    unsigned long long listens = 1;
    (void)set;
    read_number(key_of(gpu, "listens"), &listens);
    return listens && types == 8 ? state_of(gpu) : NOT_SUPPORTED;
}
/* `N.xids 79 31`: what the driver has reported so far. */
EXPORT int nvmlEventSetWait_v2(void *set, event_t *event, unsigned int timeout_ms) {
    unsigned int count;
    (void)set, (void)timeout_ms;
    nvmlDeviceGetCount_v2(&count);
    for (unsigned int index = 0; index < count && index < MAX_GPUS; index++) {
        char all[256];
        int place = 0;
        gpus[index].index = (int)index;
        if (!read_text(key_of(&gpus[index], "xids"), all, sizeof all)) continue;
        for (char *word = strtok(all, " "); word; word = strtok(NULL, " "), place++) {
            if (place < xids_told[index]) continue;
            xids_told[index]++;
            *event = (event_t){&gpus[index], 8, strtoull(word, NULL, 10), 0, 0};
            return OK;
        }
    }
    return TIMEOUT;
}
