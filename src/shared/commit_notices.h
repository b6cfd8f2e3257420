/*
 * commit_notices.h
 *	  What a transaction has to say when it has committed, and only then: lines in the server's log, and to the
 *	  dispatcher that somebody may be listening for (notify.c).
 */
#ifndef JOBQ_COMMIT_NOTICES_H
#define JOBQ_COMMIT_NOTICES_H

#define NEWS_EVENTS		0x01	/* in JobqDb.news */
#define NEWS_ALERTS		0x02

/* This transaction has written events. */
extern void news_events(void);
/* ... an alert; elevel 0: without a line in the log.  detail may be NULL. */
extern void news_alert(int elevel, const char *message, const char *detail);

#endif
