/*
 * launch.h
 *	  Messages between the helper (launch.c) and its starters (starter.c).
 *
 * An order comes over the socket: an Order with descriptors, then the strings
 * of argv, those of the environment, the tool path, and the work directory
 * with its NUL. The answer is one byte; Launched then has the result.
 */
#ifndef JOBQ_LAUNCH_H
#define JOBQ_LAUNCH_H

#include "helper.h"

#define ORDER_FDS 6				/* 0-3 of the tool, its work directory, and
								 * its cgroup if any */
#define WORKDIR_FD 4
#define CGROUP_FD 5

typedef struct Order
{
	pid_t		parent;
	struct rlimit nofile;
	rlim_t		memory_max;		/* 0: none */
	rlim_t		cpu_seconds;	/* 0: none */
	rlim_t		tag;			/* 0: none */
	uint32_t	argc;
	uint32_t	argv_len;
	uint32_t	envc;
	uint32_t	env_len;
	uint32_t	tool_path_len;
	uint32_t	workdir_len;
} Order;

typedef enum Found
{
	FOUND_NOTHING,
	FOUND_PATH,					/* no executable file is there */
	FOUND_PROGRAM
} Found;

/* The result, in shared memory. */
typedef struct Launched
{
	volatile pid_t pid;			/* of the tool's process, also before exec;
								 * 0: none yet */
	volatile int error;			/* errno, also of that process, 0: the tool
								 * runs */
	Found		found;
	bool		no_process;		/* clone has failed */
} Launched;

static inline size_t
order_texts(const Order *order)
{
	return (size_t) order->argv_len + order->env_len + order->tool_path_len + order->workdir_len;
}

/* starter.c: in the starter */
extern void run_starter(const Helper *h, int sock, Launched *result) __attribute__((noreturn));

#endif
