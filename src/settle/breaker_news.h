/*
 * breaker_news.h
 *	  Events and log lines of breakers that have opened or closed.
 */
#ifndef JOBQ_BREAKER_NEWS_H
#define JOBQ_BREAKER_NEWS_H

#include "utils/uuid.h"

typedef enum BreakerNews
{
	BREAKER_NO_NEWS,
	BREAKER_OPENED,
	BREAKER_HAS_CLOSED
} BreakerNews;

/* Keeps an event for breaker_tell(); allocates. */
extern void breaker_news_add(int32 type_id, const pg_uuid_t *id, BreakerNews news, int failures, int64 pause_us);

#endif
