/*
 * job_id.c
 *	  New ids: UUIDv7 of 48 bits of milliseconds, 12 bits of 4096ths of one, and 62 random bits.
 *
 * Within a backend each is greater than the one before, also after a step of
 * the clock.
 */
#include "jobq.h"

#include <time.h>

#include "miscadmin.h"

#include "base/job_id.h"

/* Eight random bytes, from a buffer that is never shared over a fork. */
static void
random_bytes(unsigned char *to)
{
	static unsigned char buffer[512];
	static int	used = sizeof(buffer);
	static int	pid = 0;

	if (pid != MyProcPid || used + 8 > (int) sizeof(buffer))
	{
		if (!pg_strong_random(buffer, sizeof(buffer)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		pid = MyProcPid;
		used = 0;
	}
	memcpy(to, buffer + used, 8);
	used += 8;
}

void
make_job_id(pg_uuid_t *id)
{
	static uint64 last = 0;		/* milliseconds << 12 | 4096ths of one */
	struct timespec now;
	uint64		stamp;
	int			i;

	clock_gettime(CLOCK_REALTIME, &now);
	stamp = ((uint64) now.tv_sec * 1000 + now.tv_nsec / 1000000) << 12 |
		(uint64) (now.tv_nsec % 1000000) * 4096 / 1000000;
	if (stamp <= last)
		stamp = last + 1;		/* the clock stood still or went back */
	last = stamp;

	for (i = 0; i < 6; i++)
		id->data[i] = (unsigned char) (stamp >> (52 - 8 * i));
	id->data[6] = (unsigned char) (0x70 | ((stamp >> 8) & 0x0f));
	id->data[7] = (unsigned char) stamp;
	random_bytes(id->data + 8);
	id->data[8] = (id->data[8] & 0x3f) | 0x80;
}

TimestampTz
job_id_time(const pg_uuid_t *id)
{
	int64		ms = 0;

	for (int i = 0; i < 6; i++)
		ms = ms << 8 | id->data[i];
	return ms * 1000 - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
}
