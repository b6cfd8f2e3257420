/*
 * cron_parse.c
 *	  The parser of cron expressions.
 *
 * A text is a list of rules with ";" between them.  A rule is an interval, an @name
 * (replaced by its five fields), or five or six fields.  A field is a list of
 * terms: a value, a range, "*" or "?", each with an optional step.  Terms that
 * depend on the month (L, 15W, 5#2) are alone in their field.
 */
#include "schedule/cron_parse.h"

#define MAX_FIELDS	6
#define JOIN_HINT	"Join two expressions with \";\" instead."

typedef enum FieldId
{
	F_SECOND, F_MINUTE, F_HOUR, F_DAY, F_MONTH, F_WEEKDAY
} FieldId;

typedef struct Field
{
	FieldId		id;
	const char *name;
	int			low;
	int			high;			/* of "*" and of a step without an end */
	int			values;			/* different ones */
	const char *outside;		/* the problem of a value that is no value of the field */
	const char *long_step;
	const char *names;			/* three letters for each value from the lowest on, or NULL */
} Field;

static const Field fields[] = {
	{F_SECOND, "second", 0, 59, 60, "is outside 0..59", "has a step outside 1..60", NULL},
	{F_MINUTE, "minute", 0, 59, 60, "is outside 0..59", "has a step outside 1..60", NULL},
	{F_HOUR, "hour", 0, 23, 24, "is outside 0..23", "has a step outside 1..24", NULL},
	{F_DAY, "day", 1, 31, 31, "is outside 1..31", "has a step outside 1..31", NULL},
	{F_MONTH, "month", 1, 12, 12, "is outside 1..12", "has a step outside 1..12", "janfebmaraprmayjunjulaugsepoctnovdec"},
	{F_WEEKDAY, "weekday", 0, 6, 7, "is outside 0..7", "has a step outside 1..7", "sunmontuewedthufrisat"},
};

/* ---------- fields ---------- */

/* Takes a number or a name of the field; -1 if there is none. */
static int64_t
take_value(const Field *field, Part *rest)
{
	int			names = field->names == NULL ? 0 : (int) strlen(field->names) / 3;

	for (int i = 0; i < names && rest->len >= 3; i++)
	{
		char		name[4] = {field->names[3 * i], field->names[3 * i + 1], field->names[3 * i + 2], '\0'};

		if (!is_word((Part) {rest->at, 3}, name))
			continue;
		rest->at += 3;
		rest->len -= 3;
		return field->low + i;
	}
	return take_number(rest);
}

static bool
is_value(const Field *field, int64_t value)
{
	return value >= field->low && value <= field->high + (field->id == F_WEEKDAY);
}

/*
 * Adds the values from low to high, which is below low when the range wraps.
 */
static void
add_range(const Field *field, int low, int high, int step, uint64_t *bits)
{
	/* Sunday is 7 at the end of a range that begins before it */
	if (field->id == F_WEEKDAY && low == 7)
		high = high == 7 ? 0 : high, low = 0;
	if (high < low)
		high += field->values;
	for (int value = low; value <= high; value += step)
		*bits |= UINT64_C(1) << (field->low + (value - field->low) % field->values);
}

/* Parses "*", "?", a value or a range, with an optional step. */
static bool
parse_term(const Field *field, Part term, uint64_t *bits, CronError *error)
{
	Part		rest = term;
	bool		is_open = true; /* a step goes to the highest value */
	int64_t		low = field->low;
	int64_t		high = field->high;
	int64_t		step = 1;

	if (term.len == 0)
		return fail(error, field->name, term, "is empty", NULL);
	if (rest.at[0] == '?' && field->id != F_DAY && field->id != F_WEEKDAY)
		return fail(error, field->name, term, "is for day and weekday only", "Write \"*\".");
	if (rest.at[0] == '*' || rest.at[0] == '?')
		rest.at++, rest.len--;
	else
	{
		low = take_value(field, &rest);
		if (rest.len > 0 && rest.at[0] == '-')
		{
			rest.at++, rest.len--;
			high = take_value(field, &rest);
			is_open = false;
		}
		else if (rest.len == 0)
			high = low;
	}
	if (rest.len > 0 && rest.at[0] == '/')
	{
		rest.at++, rest.len--;
		step = take_number(&rest);
	}
	if (low < 0 || high < 0 || step < 0 || rest.len > 0)
		return fail(error, field->name, term,
					field->names == NULL ? "is not a number, a range or a step"
					: "is not a number, a name of three letters, a range or a step", NULL);
	if (!is_value(field, low) || !is_value(field, high))
		return fail(error, field->name, term, field->outside, NULL);
	if (step < 1 || step > field->values)
		return fail(error, field->name, term, field->long_step, NULL);
	if (is_open && low == 7 && field->id == F_WEEKDAY)
		low = 0, high = high == 7 ? 0 : high;
	add_range(field, (int) low, (int) high, (int) step, bits);
	return true;
}

/*
 * True if the term is L, $, L-3, LW or 15W, with the rule's day set; *in_range
 * is false if its number is none of the field.
 */
static bool
parse_special_day(Part term, CronRule *rule, bool *in_range)
{
	Part		rest = term;
	int64_t		number;

	*in_range = true;
	rule->day_arg = 0;
	if (is_word(term, "l") || is_word(term, "$"))
		rule->day_kind = DAY_BEFORE_LAST;
	else if (is_word(term, "lw"))
		rule->day_kind = DAY_LAST_WORKDAY;
	else if (term.len > 2 && lower(term.at[0]) == 'l' && term.at[1] == '-')
	{
		rest.at += 2, rest.len -= 2;
		number = take_number(&rest);
		if (number < 0 || rest.len > 0)
			return false;
		*in_range = number <= 30;
		rule->day_kind = DAY_BEFORE_LAST;
		rule->day_arg = (int) number;
	}
	else
	{
		number = take_number(&rest);
		if (number < 0 || !is_word(rest, "w"))
			return false;
		*in_range = number >= 1 && number <= 31;
		rule->day_kind = DAY_NEAR_WORKDAY;
		rule->day_arg = (int) number;
	}
	return true;
}

/* True if the term is 5L or 5#2, with the rule's weekday set. */
static bool
parse_special_weekday(Part term, CronRule *rule, bool *in_range)
{
	const Field *field = &fields[F_WEEKDAY];
	Part		rest = term;
	int64_t		weekday = take_value(field, &rest);
	int64_t		nth = 1;

	if (weekday < 0)
		return false;
	if (is_word(rest, "l"))
		rule->weekday_kind = WEEKDAY_LAST;
	else
	{
		if (rest.len < 2 || rest.at[0] != '#')
			return false;
		rest.at++, rest.len--;
		nth = take_number(&rest);
		if (nth < 0 || rest.len > 0)
			return false;
		rule->weekday_kind = WEEKDAY_NTH;
	}
	*in_range = is_value(field, weekday) && nth >= 1 && nth <= 5;
	rule->weekday_arg = (int) nth;
	rule->weekdays = *in_range ? (uint32_t) 1 << (weekday % 7) : 0;
	return true;
}

static bool
parse_special(const Field *field, Part term, CronRule *rule, bool *in_range)
{
	return field->id == F_DAY ? parse_special_day(term, rule, in_range)
		: field->id == F_WEEKDAY && parse_special_weekday(term, rule, in_range);
}

static const char *
special_outside(const Field *field, Part term)
{
	if (has_char(term, '#'))
		return "is outside 0..7 before \"#\" or 1..5 after it";
	if (has_char(term, '-'))
		return "is outside 0..30 after \"L-\"";
	return field->outside;
}

/* Parses a field; special terms go to the rule, all others to *bits. */
static bool
parse_field(const Field *field, Part text, CronRule *rule, uint64_t *bits, CronError *error)
{
	Part		rest = text;
	bool		is_list = has_char(text, ',');
	bool		in_range;

	*bits = 0;
	if (text.len > 0 && text.at[text.len - 1] == ',')
		return fail(error, field->name, text, "has an empty element", NULL);
	do
	{
		Part		term = take_until(&rest, ',');

		if (term.len == 0)
			return fail(error, field->name, text, "has an empty element", NULL);
		if (!parse_special(field, term, rule, &in_range))
		{
			if (!parse_term(field, term, bits, error))
				return false;
		}
		else if (!in_range)
			return fail(error, field->name, term, special_outside(field, term), NULL);
		else if (is_list)
			return fail(error, field->name, text, "has a list with L, W or #, which stand alone", JOIN_HINT);
	} while (rest.len > 0);
	return true;
}

static bool
begins_with_any(Part field)
{
	return field.at[0] == '*' || field.at[0] == '?';
}

static bool
parse_fields(Part text, CronRule *rule, CronError *error)
{
	Part		rest = text;
	Part		parts[MAX_FIELDS];
	uint64_t	bits[MAX_FIELDS] = {1};
	int			count = 0;

	while (rest.len > 0 && count < MAX_FIELDS)
		parts[count++] = take_word(&rest);
	if (rest.len > 0 || count < MAX_FIELDS - 1)
		return fail(error, "expression", text, "does not have five or six fields",
					"The fields are minute, hour, day, month, weekday; of six the first is second. "
					"There is no field for years.");
	for (int i = MAX_FIELDS - count; i < MAX_FIELDS; i++)
	{
		if (!parse_field(&fields[i], parts[i - (MAX_FIELDS - count)], rule, &bits[i], error))
			return false;
	}
	rule->kind = CRON_CALENDAR;
	rule->seconds = bits[F_SECOND];
	rule->minutes = bits[F_MINUTE];
	rule->hours = (uint32_t) bits[F_HOUR];
	rule->days = (uint32_t) bits[F_DAY];
	rule->months = (uint32_t) bits[F_MONTH];
	if (rule->weekday_kind == WEEKDAY_SET)
		rule->weekdays = (uint32_t) bits[F_WEEKDAY];
	rule->every_hour = parts[count - 4].at[0] == '*';
	rule->either_day = !begins_with_any(parts[count - 3]) && !begins_with_any(parts[count - 1]);
	return true;
}

/* ---------- rules ---------- */

static bool
parse_name(Part text, CronRule *rule, CronError *error)
{
	static const char *const names[][2] = {
		{"@hourly", "0 * * * *"},
		{"@daily", "0 0 * * *"},
		{"@midnight", "0 0 * * *"},
		{"@weekly", "0 0 * * 0"},
		{"@monthly", "0 0 1 * *"},
		{"@yearly", "0 0 1 1 *"},
		{"@annually", "0 0 1 1 *"},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
	{
		if (is_word(text, names[i][0]))
			return parse_fields((Part) {names[i][1], (int) strlen(names[i][1])}, rule, error);
	}
	return fail(error, "expression", text,
				"is not a known name",
				"The names are @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, "
				"and @every with an interval.");
}

static bool
parse_rule(Part text, CronRule *rule, CronError *error)
{
	Part		rest = text;
	Part		word = take_word(&rest);

	memset(rule, 0, sizeof(*rule));
	if (text.len == 0)
		return fail(error, "expression", text, "is empty", NULL);
	if (is_word(word, "every") || is_word(word, "@every") || is_word(word, "after"))
	{
		rule->kind = is_word(word, "after") ? CRON_AFTER : CRON_EVERY;
		return cron_parse_interval(rest, rule, error);
	}
	if (text.at[0] == '@')
		return parse_name(text, rule, error);
	if (cron_is_interval(text))
	{
		rule->kind = CRON_EVERY;
		return cron_parse_interval(text, rule, error);
	}
	return parse_fields(text, rule, error);
}

size_t
cron_size(const char *text)
{
	int			rules = 1;

	while (rules < CRON_MAX_RULES && (text = strchr(text, ';')) != NULL)
	{
		rules++;
		text++;
	}
	return sizeof(Cron) + rules * sizeof(CronRule);
}

bool
cron_parse(const char *text, Cron *cron, CronError *error)
{
	Part		rest = {text, (int) strlen(text)};
	bool		is_last;

	cron->origin = 0;
	cron->count = 0;
	do
	{
		Part		part;
		CronRule   *rule = &cron->rules[cron->count++];

		is_last = !has_char(rest, ';');
		part = trimmed(take_until(&rest, ';'));
		if (!parse_rule(part, rule, error))
			return false;
		if (rule->kind == CRON_AFTER && (cron->count > 1 || !is_last))
			return fail(error, "expression", part, "cannot be joined with \";\"", NULL);
	} while (!is_last);
	return true;
}
