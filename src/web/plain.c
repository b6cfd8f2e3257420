/*
 * plain.c
 *	  /metrics and /livez.
 *
 * Prometheus asks for OpenMetrics by Accept.  /livez says that this program
 * serves, not that PostgreSQL does: a supervisor that restarts it for a lost
 * server would only end the sessions.
 */
#include "plain.h"

#include "gzip.h"
#include "statement.h"

void
metrics_get(Call *call)
{
	const char *accept = call->request->facts.accept;

	call_run_sql(call, header_lists(accept, "application/openmetrics-text") ?
				 "SELECT jobq.metrics('openmetrics')" : "SELECT jobq.metrics('prometheus')", true);
}

void
livez_get(Call *call)
{
	buf_text(&call->request->reply.body, "ok\n");
	call_reply(call, 200, "text/plain");
}
