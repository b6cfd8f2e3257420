/*
 * limit_hit.c
 *	  Finds the limit that made a tool fail.
 *
 * The kernel reports a reached limit to the tool only.  So this is judged by
 * evidence: the signal, the resources used, and the messages on stderr.  Only
 * tools that failed by themselves and have such a limit are judged.  Memory
 * exhaustion in a cgroup is known for certain.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"

/*
 * Messages for ENOMEM: the C library, shells, Python, C++, Java and Node.js,
 * Go, Perl.
 */
static const char *const no_memory[] = {
	"Cannot allocate memory", "cannot allocate memory", "MemoryError", "bad_alloc", "OutOfMemory",
	"out of memory", "Out of memory", "memory exhausted", NULL
};
static const char *const no_files[] = {"Too many open files", NULL};

static bool
mentions(FrameText text, const char *const *words)
{
	for (; *words; words++)
		if (text.len > 0 && memmem(text.data, text.len, *words, strlen(*words)))
			return true;
	return false;
}

/*
 * True if the tool used its processor time.  The kernel limits by ticks and
 * reports exact time: the two may differ a good deal.
 */
static bool
out_of_cpu(const Job *job, const FrameExit *result)
{
	if (result->kind == FRAME_SIGNALLED && result->value == SIGXCPU)
		return true;
	return result->utime_us + result->stime_us >= (uint64_t) job->cpu_seconds * 750000;
}

/*
 * True if the peak of resident memory is close to the limit, or stderr
 * mentions it.
 */
static bool
out_of_memory(const Job *job, const FrameExit *result)
{
	return result->maxrss_kb >= job->memory_max / 1024 / 4 * 3 || mentions(result->stderr_tail, no_memory);
}

FrameLimit
limit_hit(const Job *job, const FrameExit *result)
{
	bool		failed = result->kind == FRAME_SIGNALLED ||
		(result->kind == FRAME_EXITED && result->value != 0);

	if (!failed)
		return FRAME_LIMIT_NONE;
	if (job->oom)
		return FRAME_LIMIT_MEMORY;
	if (job->cpu_seconds > 0 && out_of_cpu(job, result))
		return FRAME_LIMIT_CPU;
	if (job->memory_max > 0 && out_of_memory(job, result))
		return FRAME_LIMIT_MEMORY;
	if (mentions(result->stderr_tail, no_files))
		return FRAME_LIMIT_FILES;
	return FRAME_LIMIT_NONE;
}
