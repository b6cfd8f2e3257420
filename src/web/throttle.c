/*
 * throttle.c
 *	  Counts wrong passwords and requests with a password, by role and address.
 *
 * The table is small and of fixed size.  A new pair takes a free entry, else one
 * whose wrong passwords count no more, else the one whose last attempt is
 * longest ago, never one that is locked.  So made-up roles can make room for
 * further guesses only by wrong passwords of their own, and those of an address
 * are limited.
 *
 * No answer may tell a right password from a wrong one before the server was
 * asked, or while it is not asked.  So throttle_wait() also holds up a password
 * that is known to be right, and throttle_may_ask() counts all alike.
 */
#include "throttle.h"

#include <string.h>

#include "buf.h"
#include "person.h"

#define ENTRIES			1024
#define ENTRIES_A_NETWORK 128	/* with wrong passwords */
#define FREE_ATTEMPTS	5
#define WINDOW_MS		(60 * SECOND)
#define FIRST_LOCK_MS	(1 * SECOND)
#define MAX_LOCK_MS		(60 * SECOND)

typedef struct Entry
{
	char		role[MAX_ROLE + 1];
	Address		address;
	int			wrong;			/* of this window, those in flight too */
	int			flying;
	uint64_t	last;			/* 0: the entry is free */
	uint64_t	locked_until;
	uint64_t	lock_ms;
	Allowance	allowance;
} Entry;

static Entry entries[ENTRIES];

static Entry *
find(const char *role, const Address *address)
{
	int			i;

	for (i = 0; i < ENTRIES; i++)
	{
		Entry	   *e = &entries[i];

		if (e->last && strcmp(e->role, role) == 0 && same_address(&e->address, address))
			return e;
	}
	return NULL;
}

/* True if the entry's wrong passwords still count. */
static bool
counts(const Entry *e, uint64_t now)
{
	return e->wrong > 0 && (e->flying > 0 || now - e->last <= WINDOW_MS || now < e->locked_until + WINDOW_MS);
}

static bool
is_better(const Entry *e, const Entry *than, uint64_t now)
{
	return !than || (counts(e, now) != counts(than, now) ? !counts(e, now) : e->last < than->last);
}

/* Gives an entry to a new pair; NULL: none is free. */
static Entry *
take(const char *role, const Address *address, uint64_t now)
{
	Entry	   *found = NULL;
	int			theirs = 0;
	int			i;

	for (i = 0; i < ENTRIES; i++)
	{
		Entry	   *e = &entries[i];

		theirs += counts(e, now) && same_address(&e->address, address);
		if (e->flying == 0 && e->locked_until <= now && is_better(e, found, now))
			found = e;
	}
	if (!found || theirs >= ENTRIES_A_NETWORK)
		return NULL;
	*found = (Entry) {.address = *address, .last = now, .allowance = allowance_full(now)};
	strncpy(found->role, role, MAX_ROLE);
	return found;
}

/* Returns the seconds in which no password of the pair is tried. */
static int
seconds_left(const Entry *e, uint64_t now)
{
	if (e->locked_until > now)
		return (int) ((e->locked_until - now + SECOND - 1) / SECOND);
	return e->wrong >= FREE_ATTEMPTS && e->flying > 0 ? 1 : 0;
}

int
throttle_wait(const char *role, const Address *address)
{
	const Address from = client_network(address);
	const Entry *e = find(role, &from);

	return e ? seconds_left(e, now_ms()) : 0;
}

bool
throttle_may_ask(const char *role, const Address *address)
{
	const Address from = client_network(address);
	uint64_t	now = now_ms();
	Entry	   *e = find(role, &from);

	if (!e && strlen(role) <= MAX_ROLE)
		e = take(role, &from, now);
	return !e || allowance_take(&e->allowance, now);
}

int
throttle_begin(const char *role, const Address *address, int *wait_s)
{
	const Address from = client_network(address);
	uint64_t	now = now_ms();
	Entry	   *e = find(role, &from);

	*wait_s = 1;
	if (!e && !(e = take(role, &from, now)))
		return -1;
	if (e->flying == 0 && now - e->last > WINDOW_MS && e->locked_until + WINDOW_MS < now)
	{
		e->wrong = 0;
		e->lock_ms = 0;
	}
	if (seconds_left(e, now) > 0)
	{
		*wait_s = seconds_left(e, now);
		return -1;
	}
	e->last = now;
	e->wrong++;
	e->flying++;
	return (int) (e - entries);
}

void
throttle_end(int attempt, Outcome outcome)
{
	Entry	   *e = &entries[attempt];

	e->flying--;
	if (outcome == OUTCOME_UNKNOWN)
		e->wrong--;
	else if (outcome == OUTCOME_RIGHT)
	{
		e->wrong = e->flying;
		e->lock_ms = 0;
	}
	else if (e->wrong >= FREE_ATTEMPTS)
	{
		e->lock_ms = e->lock_ms ? e->lock_ms * 2 : FIRST_LOCK_MS;
		if (e->lock_ms > MAX_LOCK_MS)
			e->lock_ms = MAX_LOCK_MS;
		e->locked_until = now_ms() + e->lock_ms;
	}
}
