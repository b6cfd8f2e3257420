/*
 * cron_interval.c
 *	  The intervals of "every 90s" and "after 90s": numbers with units of constant
 *	  length.
 */
#include "schedule/cron_parse.h"

#define MICROS			INT64_C(1000000)
#define MAX_MICROS		(CRON_HORIZON * MICROS)

typedef enum IntervalResult
{
	INTERVAL_OK, INTERVAL_SYNTAX, INTERVAL_MONTHS, INTERVAL_TOO_LONG
} IntervalResult;

/* Returns the seconds of a unit, 0 for months and years, -1 for other words. */
static int64_t
unit_seconds(Part word)
{
	static const struct
	{
		const char *words;		/* each between spaces */
		int64_t		seconds;
	}			units[] = {
		{" s sec secs second seconds ", 1},
		{" m min mins minute minutes ", 60},
		{" h hr hrs hour hours ", 3600},
		{" d day days ", 86400},
		{" w week weeks ", 604800},
		{" mon mons month months y yr yrs year years ", 0},
	};
	char		key[16] = " ";

	if (word.len < 1 || word.len > (int) sizeof(key) - 3)
		return -1;
	for (int i = 0; i < word.len; i++)
		key[i + 1] = lower(word.at[i]);
	key[word.len + 1] = ' ';
	key[word.len + 2] = '\0';
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
	{
		if (strstr(units[i].words, key) != NULL)
			return units[i].seconds;
	}
	return -1;
}

/* Takes ":MM" or ":MM:SS" behind a number of hours; -1 if there is none. */
static int64_t
take_clock(Part *rest)
{
	int64_t		seconds = 0;
	int			parts;

	for (parts = 0; parts < 2 && rest->len >= 3 && rest->at[0] == ':'; parts++)
	{
		Part		number = {rest->at + 1, 2};
		int64_t		value = take_number(&number);

		if (number.len > 0 || value > 59)
			return -1;
		seconds += value * (parts == 0 ? 60 : 1);
		rest->at += 3;
		rest->len -= 3;
	}
	return parts == 0 || (rest->len > 0 && !is_space(rest->at[0])) ? -1 : seconds;
}

/* Takes a number of up to six decimals, as millionths; -1 if there is none. */
static int64_t
take_decimal(Part *rest)
{
	int64_t		number = take_number(rest);
	int64_t		unit = MICROS;

	if (number < 0)
		return -1;
	number *= MICROS;
	if (rest->len > 0 && rest->at[0] == '.')
	{
		rest->at++, rest->len--;
		for (; rest->len > 0 && is_digit(rest->at[0]) && unit > 1; rest->at++, rest->len--)
			number += (rest->at[0] - '0') * (unit /= 10);
	}
	return number;
}

/* Parses "90s", "1 hour 30 minutes", "1h30m", "1 day 02:00". */
static IntervalResult
parse_interval(Part text, int64_t *micros)
{
	Part		rest = trimmed(text);

	*micros = 0;
	if (rest.len == 0)
		return INTERVAL_SYNTAX;
	for (; rest.len > 0; rest = trimmed(rest))
	{
		int64_t		number = take_decimal(&rest);
		int64_t		seconds = 3600;
		int64_t		clock = 0;
		Part		word;

		if (number < 0)
			return INTERVAL_SYNTAX;
		if (rest.len > 0 && rest.at[0] == ':')
		{
			if ((clock = take_clock(&rest)) < 0 || number % MICROS != 0)
				return INTERVAL_SYNTAX;
		}
		else
		{
			rest = trimmed(rest);
			word.at = rest.at;
			for (word.len = 0; rest.len > 0 && is_letter(rest.at[0]); rest.at++, rest.len--)
				word.len++;
			seconds = unit_seconds(word);
		}
		if (seconds <= 0)
			return seconds == 0 ? INTERVAL_MONTHS : INTERVAL_SYNTAX;
		if (number > MAX_MICROS / seconds)
			return INTERVAL_TOO_LONG;
		*micros += number * seconds + clock * MICROS;
		if (*micros > MAX_MICROS)
			return INTERVAL_TOO_LONG;
	}
	return INTERVAL_OK;
}

bool
cron_parse_interval(Part text, CronRule *rule, CronError *error)
{
	int64_t		micros;

	switch (parse_interval(text, &micros))
	{
		case INTERVAL_OK:
			break;
		case INTERVAL_SYNTAX:
			return fail(error, "interval", text, "is not numbers with units",
						"Write \"90s\" or \"1 hour 30 minutes\".");
		case INTERVAL_MONTHS:
			return fail(error, "interval", text, "has months or years, which vary in length",
						"Write a cron expression: \"0 0 1 * *\" is each month, \"0 0 1 1 *\" each year.");
		case INTERVAL_TOO_LONG:
			return fail(error, "interval", text, "is longer than 100 years", NULL);
	}
	if (micros % MICROS != 0)
		return fail(error, "interval", text, "is not whole seconds", NULL);
	if (micros == 0)
		return fail(error, "interval", text, "is less than 1 second", NULL);
	rule->interval = micros / MICROS;
	return true;
}

bool
cron_is_interval(Part text)
{
	int64_t		micros;

	return parse_interval(text, &micros) != INTERVAL_SYNTAX;
}
