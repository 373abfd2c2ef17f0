/* A job on the true libnccl without a GPU, for truelibraries_test.go: a communicator of
 * its own making, on which the library's own functions say rank, size and device.
 * Arguments: the library, the offset of the rank, that of the magic at the end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAGIC 0x0280028002800280ull /* src/include/comm.h, since 2.21 */

typedef struct { char internal[128]; } unique_id; /* nccl.h */

static sigjmp_buf back;

static void caught(int signal)
{
	siglongjmp(back, signal);
}

/* What the library does with such a communicator behind its entry does not matter. */
#define ATTEMPT(call)                            \
	do {                                     \
		if (!sigsetjmp(back, 1))         \
			call;                    \
	} while (0)

#define FUNCTION(result, name, ...) result (*name)(__VA_ARGS__) = dlsym(library, #name)

int main(int count, char **arguments)
{
	void *library = count == 4 ? dlopen(arguments[1], RTLD_NOW) : 0;
	uint64_t rank, end, i;
	char *zeros, *comm;
	char line[16];
	int value;

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	setvbuf(stdout, 0, _IONBF, 0);
	signal(SIGSEGV, caught);
	signal(SIGABRT, caught);
	rank = strtoull(arguments[2], 0, 0);
	end = strtoull(arguments[3], 0, 0);
	/* Each word of it points to zeros; read as two ints, the second is zero as well. */
	zeros = mmap((void *)0x10000000, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	comm = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (i = 0; i < end; i += 8)
		*(char **)(comm + i) = zeros;
	*(uint64_t *)comm = *(uint64_t *)(comm + end) = MAGIC;
	*(uint64_t *)(comm + rank - 8) = 0x1122334455667788ull;
	*(int *)(comm + rank) = 5;
	*(int *)(comm + rank + 4) = 8;
	*(int *)(comm + rank + 8) = 3;

	FUNCTION(int, ncclCommUserRank, void *, int *);
	FUNCTION(int, ncclCommCount, void *, int *);
	FUNCTION(int, ncclCommCuDevice, void *, int *);
	FUNCTION(int, ncclGetUniqueId, unique_id *);
	FUNCTION(int, ncclCommInitRank, void **, int, unique_id, int);
	FUNCTION(int, ncclCommInitRankConfig, void **, int, unique_id, int, void *);
	FUNCTION(int, ncclAllReduce, const void *, void *, size_t, int, int, void *, void *);
	FUNCTION(int, ncclReduce, const void *, void *, size_t, int, int, int, void *, void *);
	FUNCTION(int, ncclAllGather, const void *, void *, size_t, int, void *, void *);
	FUNCTION(int, ncclBroadcast, const void *, void *, size_t, int, int, void *, void *);
	FUNCTION(int, ncclBcast, void *, size_t, int, int, void *, void *);
	FUNCTION(int, ncclSend, const void *, size_t, int, int, void *, void *);
	value = -1;
	ncclCommUserRank(comm, &value);
	printf("%d ", value);
	ncclCommCount(comm, &value);
	printf("%d ", value);
	ncclCommCuDevice(comm, &value);
	printf("%d\n", value);

	while (fgets(line, sizeof(line), stdin)) { /* the probe is there */
		unique_id id;
		void *made = 0;

		memset(&id, 0, sizeof(id));
		ATTEMPT(ncclGetUniqueId(&id));
		ATTEMPT(ncclCommInitRank(&made, 8, id, 5));
		ATTEMPT(ncclCommInitRankConfig(&made, 16, id, 7, 0));
		ATTEMPT(ncclAllReduce(0, 0, 4096, 9, 0, comm, 0));
		ATTEMPT(ncclReduce(0, 0, 11, 7, 0, 3, comm, 0));
		ATTEMPT(ncclAllGather(0, 0, 12, 7, comm, 0));
		ATTEMPT(ncclBroadcast(0, 0, 13, 7, 2, comm, 0));
		ATTEMPT(ncclBcast(0, 14, 7, 2, comm, 0));
		ATTEMPT(ncclSend(0, 15, 7, 4, comm, 0));
		printf("done\n");
	}
	return 0;
}
