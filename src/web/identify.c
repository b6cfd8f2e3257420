/*
 * identify.c
 *	  Finds the person that a request comes from, and checks that the request
 *	  was meant.
 *
 * Three ways, the first one that is there: a header of a trusted proxy, Basic,
 * the cookie of a session.  PostgreSQL decides whether a role and a password
 * fit, when the first connection is opened.
 *
 * A browser adds cookies, the proxy's sign-in and remembered Basic passwords
 * to requests that other sites make.  It also says where they come from: an
 * Origin that is not ours is refused on every method that changes something;
 * with a cookie or a proxy's user there must be one, and with a cookie the
 * token that only our own page can read.  Browsers that send Sec-Fetch-Site say
 * it of every request: those for another site are refused before any password
 * is looked at, so that it learns nothing from answers or their times, and locks
 * no role.
 */
#include "identify.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "problem.h"
#include "throttle.h"

#define MAX_BASIC (MAX_ROLE + 1 + MAX_PASSWORD + 1)

static bool
refuse(Call *call, int status, const char *detail)
{
	problem_reply(call->request, status, detail);
	return false;
}

static void
verdict(Person *person, Verdict what)
{
	throttle_end(person->attempt, what == VERDICT_LET_IN ? OUTCOME_RIGHT :
				 what == VERDICT_REFUSED ? OUTCOME_WRONG : OUTCOME_UNKNOWN);
}

static bool
too_many_requests(Call *call)
{
	reply_header(call->request, "Retry-After", "1");
	return refuse(call, 429, "more than 50 requests a second");
}

static bool
too_many_attempts(Call *call, int wait_s)
{
	char		seconds[16];

	snprintf(seconds, sizeof(seconds), "%d", wait_s);
	reply_header(call->request, "Retry-After", seconds);
	return refuse(call, 429, "too many wrong passwords for this role from this address");
}

Person *
sign_in_person(Call *call, const char *database, const char *role, const char *password)
{
	Person	   *person;
	int			wait_s;

	if (*role == '\0' || strlen(role) > MAX_ROLE || *password == '\0' || strlen(password) > MAX_PASSWORD)
	{
		refuse(call, 401, "the role or the password is empty or too long");
		return NULL;
	}
	if (config_is_proxy_role(web_config, role))
	{
		refuse(call, 403, "this role is for users of the proxy");
		return NULL;
	}
	persons_expire(now_ms());	/* ends attempts of requests that asked no server */
	wait_s = throttle_wait(role, &call->request->client);
	if (wait_s > 0)
	{
		too_many_attempts(call, wait_s);
		return NULL;
	}
	person = person_of(database, role, password, NULL);
	if (!person)
	{
		refuse(call, 503, "too many roles are signed in");
		return NULL;
	}
	if (person->proven || person->on_verdict)
		return person;
	person->attempt = throttle_begin(role, &call->request->client, &wait_s);
	if (person->attempt >= 0)
	{
		person->on_verdict = verdict;
		return person;
	}
	person_release(person);
	too_many_attempts(call, wait_s);
	return NULL;
}

static bool
identify_basic(Call *call)
{
	char		buffer[MAX_BASIC + 1];
	const char *role;
	const char *password;

	if (!basic_split(call->request->facts.authorization, buffer, sizeof(buffer), &role, &password))
		refuse(call, 401, "Authorization is not Basic with a role and its password");
	else if (!throttle_may_ask(role, &call->request->client))
		too_many_requests(call);
	else
		call->person = sign_in_person(call, config_database(web_config, NULL), role, password);
	explicit_bzero(buffer, sizeof(buffer));
	return call->person != NULL;
}

static bool
identify_session(Call *call)
{
	char		token[TOKEN_LENGTH + 1];

	if (cookie_value(call->request->facts.cookie, SESSION_COOKIE, token, sizeof(token)))
		call->session = session_of(token, now_ms());
	explicit_bzero(token, sizeof(token));
	if (!call->session)
		return refuse(call, 401, "sign in first");
	memcpy(call->csrf, call->session->csrf, sizeof(call->csrf));
	call->person = call->session->person;
	person_hold(call->person);
	return true;
}

static bool
is_proxied(const Call *call)
{
	return call->request->conn->trusted && call->request->facts.user;
}

static bool
identify_proxied(Call *call)
{
	const char *user = call->request->facts.user;
	const char *role = config_role_of(web_config, user);

	if (*user == '\0' || !role)
		return refuse(call, 403, "the setting roles has no role for this user");
	call->person = person_of(config_database(web_config, NULL), role, NULL, user);
	return call->person || refuse(call, 503, "too many users are signed in");
}

/* Requests at metrics_listen run as the user of dsn. */
static bool
identify_service(Call *call)
{
	call->person = person_of(config_database(web_config, NULL), NULL, NULL, NULL);
	return call->person || refuse(call, 503, "too many roles are signed in");
}

bool
call_identify(Call *call)
{
	bool		found;

	if (call->request->conn->metrics)
		return identify_service(call);
	if (!is_proxied(call) && call->request->facts.authorization)
		return identify_basic(call);
	found = is_proxied(call) ? identify_proxied(call) : identify_session(call);
	return found && (allowance_take(&call->person->allowance, now_ms()) || too_many_requests(call));
}

static bool
is_json(const char *type)
{
	size_t		len = strlen(JSON_TYPE);

	return type && strncasecmp(type, JSON_TYPE, len) == 0 && strchr("; \t", type[len]) != NULL;
}

bool
call_is_of_our_site(Call *call)
{
	const HeadFacts *facts = &call->request->facts;
	const char *site = facts->fetch_site;
	bool		follows = facts->fetch_mode && strcmp(facts->fetch_mode, "navigate") == 0 &&
		strcmp(call->request->method, "GET") == 0;

	return !site || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0 || follows ||
		refuse(call, 403, "Sec-Fetch-Site is another site");
}

bool
call_is_meant(Call *call)
{
	const HeadFacts *facts = &call->request->facts;
	const char *method = call->request->method;

	if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
		return true;
	if (facts->origin && strcmp(facts->origin, web_config->origin) != 0)
	{
		log_line("refused Origin %.100s: the setting origin is %s", facts->origin, web_config->origin);
		return refuse(call, 403, "Origin is not this server's");
	}
	if (!facts->origin && (call->session || is_proxied(call)))
		return refuse(call, 403, "there is no Origin header");
	if (call->session && !(facts->csrf && same_secret(facts->csrf, call->session->csrf)))
		return refuse(call, 403, "X-Csrf-Token is missing or wrong");
	if (facts->body > 0 && !is_json(facts->content_type))
		return refuse(call, 415, "the body must be application/json");
	return true;
}
