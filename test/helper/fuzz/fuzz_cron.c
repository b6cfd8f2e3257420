/*
 * fuzz_cron.c
 *	  Z5: the parser of cron expressions.  The ticks of what it accepts increase;
 *	  errors quote a part of the text.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/cron.h"

#define PERIOD	(180 * CRON_DAY)

int			LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
expect(bool ok)
{
	if (!ok)
		abort();
}

/* A clock that changes twice a year, by an hour, a day and more. */
int64_t
cron_zone_offset(const CronZone *zone, int64_t at, int64_t *until)
{
	static const int offsets[] = {3600, 7200, -43200, 46800, 1800, -4500, 86400, 0};
	int64_t		period = at / PERIOD - (at % PERIOD < 0);

	(void) zone;
	*until = (period + 1) * PERIOD;
	return offsets[period & 7];
}

/* Tests the ticks after an instant. */
static void
check_ticks(const Cron *cron, int64_t since)
{
	int64_t		at = since;
	int			count;

	for (count = 0; count < 4; count++)
	{
		int64_t		next = cron_next(cron, NULL, at);

		expect(next > at && (next == CRON_NEVER || next - at <= CRON_HORIZON));
		if (next == CRON_NEVER)
			break;
		expect(cron_last(cron, NULL, since, next) == next && cron_last(cron, NULL, at, next - 1) == CRON_NEVER);
		at = next;
	}
	expect(cron_count(cron, NULL, since, at, 10) == count);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Cron	   *cron;
	CronError	error;
	char		text[CRON_MAX_BYTES + 1];

	if (size < 4 || size > CRON_MAX_BYTES + 4)
		return 0;
	memcpy(text, data + 4, size - 4);
	text[size - 4] = '\0';
	cron = malloc(cron_size(text));
	if (cron_parse(text, cron, &error))
	{
		expect(cron->count >= 1 && cron->count <= CRON_MAX_RULES);
		check_ticks(cron, (int64_t) (data[0] | data[1] << 8 | data[2] << 16) * 1000 - data[3]);
	}
	else
		expect(error.len >= 0 && error.value >= text && error.value + error.len <= text + strlen(text));
	free(cron);
	return 0;
}
