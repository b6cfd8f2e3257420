/*
 * sign_in.c
 *	  The routes of sessions.
 *
 * A sign-in opens a new connection, also for a person that is known already:
 * the server checks the password each time.  The session begins when the first
 * statement has answered what the role may do.
 */
#include "sign_in.h"

#include <stdlib.h>
#include <string.h>

#include "identify.h"
#include "json.h"
#include "problem.h"
#include "statement.h"

#define COOKIE_RULES "; Path=/; Secure; HttpOnly; SameSite=Strict"

/* What the role may do: by the functions that grant_access gives with each access. */
static const char rights[] =
"SELECT json_build_object('user', session_user, 'database', current_database(), 'can',"
" (SELECT json_object_agg(v.can, EXISTS ("
"    SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
"     WHERE n.nspname = 'jobq' AND p.proname = v.f AND has_function_privilege(p.oid, 'EXECUTE')))"
"   FROM (VALUES ('read', 'list_jobs'), ('enqueue', 'enqueue'), ('work', 'claim'), ('admin', 'cancel_job'),"
"                ('configure', 'create_job_type'), ('watch', 'metrics')) v(can, f)))";

static void
reply_session(Call *call)
{
	Buf		   *body = &call->request->reply.body;

	/* the server's object without its closing brace, and the token */
	buf_add(body, call->items.data, call->items.len > 0 ? call->items.len - 1 : 0);
	buf_text(body, ", \"csrf\" : ");
	if (call->csrf[0])
		buf_json(body, call->csrf, strlen(call->csrf));
	else
		buf_text(body, "null");
	buf_text(body, "}\n");
	call_reply(call, 200, JSON_TYPE);
}

static void
set_cookie(Call *call, const char *token, const char *more)
{
	Buf			cookie = {0};

	buf_printf(&cookie, SESSION_COOKIE "=%s%s" COOKIE_RULES, token, more);
	reply_header(call->request, "Set-Cookie", cookie.data);
	buf_wipe(&cookie);
}

/* The former session of the browser ends. */
static void
end_former(const Call *call)
{
	char		token[TOKEN_LENGTH + 1];
	Session    *session = NULL;

	if (cookie_value(call->request->facts.cookie, SESSION_COOKIE, token, sizeof(token)))
		session = session_of(token, now_ms());
	if (session)
		session_end(session, "signed_out");
}

static void
signed_in(Call *call, const PgError *error)
{
	if (error)
	{
		problem_server(call->request, error);
		return;
	}
	end_former(call);
	call->session = session_begin(call->person);
	if (!call->session)
	{
		problem_reply(call->request, 503, "too many sessions");
		return;
	}
	memcpy(call->csrf, call->session->csrf, sizeof(call->csrf));
	set_cookie(call, call->session->token, "");
	reply_session(call);
}

/* Returns the text of a JSON string; NULL: it was not given. */
static char *
text_of(const Call *call, const char *name)
{
	const char *value = call_value(call, name);

	return value ? json_string(value, strlen(value)) : NULL;
}

void
session_post(Call *call)
{
	char	   *user = text_of(call, "user");
	char	   *password = text_of(call, "password");
	char	   *name = text_of(call, "database");
	const char *database = config_database(web_config, name);

	if (name && !database)
		problem_argument(call->request, "database", "argument \"database\": \"%.63s\" is not in the setting databases", name);
	else
		call->person = sign_in_person(call, database, user, password);
	explicit_bzero(password, strlen(password));
	free(user);
	free(password);
	free(name);
	if (!call->person)
		return;
	call->finished = signed_in;
	call_run_fresh(call, rights);
}

static void
shown(Call *call, const PgError *error)
{
	if (error)
		problem_server(call->request, error);
	else
		reply_session(call);
}

void
session_get(Call *call)
{
	call->finished = shown;
	call_run_sql(call, rights, true);
}

void
session_delete(Call *call)
{
	if (call->session)
		session_end(call->session, "signed_out");
	call->session = NULL;
	set_cookie(call, "", "; Max-Age=0");
	buf_text(&call->request->reply.body, "{\"ok\":true}\n");
	call_reply(call, 200, JSON_TYPE);
}
