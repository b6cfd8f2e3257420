/*
 * commit_news.h
 *	  Notices of a transaction, given only after its commit: lines in the
 *	  server log, and news for the dispatcher that sessions may listen for
 *	  (notify.c).
 */
#ifndef JOBQ_COMMIT_NEWS_H
#define JOBQ_COMMIT_NEWS_H

#define NEWS_EVENTS		0x01	/* in JobqDb.news */
#define NEWS_ALERTS		0x02

/* Part of the server's queue of notifications from which on jobq sends none. */
#define NOTIFY_QUEUE_LIMIT	0.5

/* Notes that this transaction has written events. */
extern void news_events(void);

/*
 * Notes an alert of this transaction; elevel 0: without a line in the log.
 * detail may be NULL.
 */
extern void news_alert(int elevel, const char *message, const char *detail);

#endif
