/*
 * person.c
 *	  Persons: a role of PostgreSQL with the password that was given for it.
 */
#include "person.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "secret.h"

#define REQUESTS_PER_SECOND 50.0

static Person *persons = NULL;
static int	npersons = 0;

static bool
same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool
is_person(const Person *p, const char *database, const char *role, const char *password, const char *user)
{
	if (p->refused || !same_text(p->database, database) || !same_text(p->role, role) || !same_text(p->user, user))
		return false;
	if (!p->password || !password)
		return p->password == password;
	return same_secret(p->password, password);
}

Person *
person_of(const char *database, const char *role, const char *password, const char *user)
{
	Person	   *p;

	persons_expire(now_ms());
	for (p = persons; p; p = p->next)
	{
		if (is_person(p, database, role, password, user))
		{
			person_hold(p);
			return p;
		}
	}
	if (npersons >= MAX_PERSONS)
		return NULL;
	p = mem_zero(sizeof(Person));
	if (password && !(p->password = secret_keep(password)))
	{
		free(p);
		return NULL;
	}
	p->database = database ? mem_text(database) : NULL;
	p->role = role ? mem_text(role) : NULL;
	p->user = user ? mem_text(user) : NULL;
	p->allowance = allowance_full(now_ms());
	p->next = persons;
	persons = p;
	npersons++;
	person_hold(p);
	return p;
}

void
person_hold(Person *person)
{
	person->refs++;
	person->used = now_ms();
}

void
person_release(Person *person)
{
	if (person)
		person->refs--;
}

void
person_verdict(Person *person, Verdict verdict)
{
	void		(*tell) (Person *, Verdict) = person->on_verdict;

	if (verdict == VERDICT_LET_IN)
	{
		person->proven = true;
		person->let_in = now_ms();
	}
	else if (verdict == VERDICT_REFUSED)
		person->refused = true;
	person->on_verdict = NULL;
	if (tell)
		tell(person, verdict);
}

Allowance
allowance_full(uint64_t now)
{
	return (Allowance) {REQUESTS_PER_SECOND, now};
}

bool
allowance_take(Allowance *allowance, uint64_t now)
{
	allowance->left += (double) (now - allowance->at) * REQUESTS_PER_SECOND / 1000.0;
	allowance->at = now;
	if (allowance->left > REQUESTS_PER_SECOND)
		allowance->left = REQUESTS_PER_SECOND;
	if (allowance->left < 1.0)
		return false;
	allowance->left -= 1.0;
	return true;
}

void
persons_expire(uint64_t now)
{
	Person	  **place = &persons;

	while (*place)
	{
		Person	   *p = *place;

		if (p->refs > 0 || (!p->refused && p->proven && now - p->used < CHECK_AGAIN_MS))
		{
			place = &p->next;
			continue;
		}
		/* no connection was tried: a request without a statement, or an error in it */
		person_verdict(p, VERDICT_NONE);
		*place = p->next;
		npersons--;
		secret_drop(p->password);
		free(p->database);
		free(p->role);
		free(p->user);
		free(p);
	}
}
