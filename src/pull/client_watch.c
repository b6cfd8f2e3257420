/*
 * client_watch.c
 *	  The end of a client's connection, while its session waits for jobs.
 *
 * The server reads a client's socket between statements only.  So a waiting
 * claim of a killed client would take a job and keep it for its whole lease.
 * The wait therefore includes the end of the connection, which costs no
 * wake-up, and each answer is checked once more before a row is written.
 *
 * The session ends as with client_connection_check_interval: its transaction
 * is aborted, and the jobs of an answer go back uncharged.  Some platforms
 * can't report a closed socket (WaitEventSetCanReportClosed); there the lease
 * decides.  A background worker has no client.
 */
#include "jobq.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"

/* Nothing here looks into a Port, whose members need these libraries' headers. */
#undef ENABLE_GSS
#undef USE_OPENSSL
#include "libpq/libpq.h"

#include "pull/client_watch.h"

static bool
has_client(void)
{
	return MyProcPort != NULL && FeBeWaitSet != NULL && WaitEventSetCanReportClosed();
}

/* Ends the session: CHECK_FOR_INTERRUPTS raises the error of a lost client. */
static void
end_session(void)
{
	ClientConnectionLost = true;
	InterruptPending = true;
	CHECK_FOR_INTERRUPTS();
}

void
client_check(void)
{
	if (has_client() && !pq_check_connection())
		end_session();
}

void
client_wait_latch(long timeout_ms, uint32 wait_event)
{
	WaitEvent	events[FeBeWaitSetNEvents];
	int			n;

	if (!has_client())
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms, wait_event);
		return;
	}
	ModifyWaitEvent(FeBeWaitSet, FeBeWaitSetSocketPos, WL_SOCKET_CLOSED, NULL);	/* as pq_check_connection */
	n = WaitEventSetWait(FeBeWaitSet, timeout_ms, events, FeBeWaitSetNEvents, wait_event);
	for (int i = 0; i < n; i++)
	{
		if (events[i].events & WL_POSTMASTER_DEATH)
			proc_exit(1);
		if (events[i].events & WL_SOCKET_CLOSED)
			end_session();
	}
}
