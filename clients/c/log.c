/* Text, JSON, time and the log of the C client. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---------- memory, text, time ---------- */

void *
jw_allocate(size_t size)
{
	void	   *memory = calloc(1, size ? size : 1);

	if (memory == NULL)
		abort();
	return memory;
}

char *
jw_copy(const char *text)
{
	return text ? strcpy(jw_allocate(strlen(text) + 1), text) : NULL;
}

void
jw_append_bytes(Buffer *buffer, const void *data, size_t length)
{
	if (buffer->length + length + 1 > buffer->size)
	{
		buffer->size = (buffer->length + length + 1) * 2;
		buffer->data = realloc(buffer->data, buffer->size);
		if (buffer->data == NULL)
			abort();
	}
	memcpy(buffer->data + buffer->length, data, length);
	buffer->length += length;
	buffer->data[buffer->length] = '\0';
}

void
jw_append(Buffer *buffer, const char *text)
{
	jw_append_bytes(buffer, text, strlen(text));
}

/* Appends an element of an array literal. */
void
jw_append_element(Buffer *array, const char *text)
{
	jw_append(array, array->length == 0 ? "{" : ",");
	if (text == NULL)
	{
		jw_append(array, "NULL");
		return;
	}
	jw_append(array, "\"");
	for (; *text; text++)
	{
		if (*text == '"' || *text == '\\')
			jw_append(array, "\\");
		jw_append_bytes(array, text, 1);
	}
	jw_append(array, "\"");
}

/* Appends text as a JSON string, without the newline at the end of libpq's messages. */
static void
append_json(Buffer *json, const char *text)
{
	char		escape[8];

	jw_append(json, "\"");
	for (; *text && strcmp(text, "\n") != 0; text++)
	{
		if (*text == '"' || *text == '\\')
			jw_append(json, "\\");
		if ((unsigned char) *text >= ' ')
			jw_append_bytes(json, text, 1);
		else
		{
			snprintf(escape, sizeof(escape), "\\u%04x", *text);
			jw_append(json, escape);
		}
	}
	jw_append(json, "\"");
}

int64_t
jw_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t
jw_earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* ---------- log ---------- */

/*
 * Logs an event.  The fields are pairs of name and text, NULL at the end; a
 * name that begins with '#' has a number as its text.
 */
void
jw_log_event(jobq_worker *worker, const char *level, const char *event,...)
{
	Buffer		line = {0};
	char		ts[40];
	struct timespec t;
	struct tm	utc;
	va_list		fields;

	clock_gettime(CLOCK_REALTIME, &t);
	gmtime_r(&t.tv_sec, &utc);
	strftime(ts, sizeof(ts), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(ts + strlen(ts), sizeof(ts) - strlen(ts), ".%03dZ", (int) (t.tv_nsec / 1000000));
	jw_append(&line, "{\"event\": ");
	append_json(&line, event);
	jw_append(&line, ", \"ts\": ");
	append_json(&line, ts);
	jw_append(&line, ", \"level\": ");
	append_json(&line, level);
	va_start(fields, event);
	for (const char *name; (name = va_arg(fields, const char *)) != NULL;)
	{
		const char *text = va_arg(fields, const char *);

		jw_append(&line, ", ");
		append_json(&line, name + (*name == '#'));
		jw_append(&line, ": ");
		if (*name == '#')
			jw_append(&line, text);
		else
			append_json(&line, text);
	}
	va_end(fields);
	jw_append(&line, "}");
	if (worker->options.log)
		worker->options.log(line.data, worker->options.arg);
	else
		fprintf(stderr, "%s\n", line.data);
	free(line.data);
}

void
jw_log_started(jobq_worker *worker, const jobq_job *job)
{
	char		attempt[16];

	snprintf(attempt, sizeof(attempt), "%d", job->attempts);
	jw_log_event(worker, "info", "job_started", "job_id", job->id, "job_type", job->type, "#attempt", attempt, NULL);
}

/* Logs the end of a job; its duration counts from the start of the handler. */
void
jw_log_end(jobq_worker *worker, const jobq_job *job, const char *event, const char *outcome, const char *error)
{
	char		attempt[16],
				duration[24];
	const char *level = strcmp(event, "job_lost") == 0 ? "error" : strcmp(event, "job_failed") == 0 ? "warning" : "info";

	snprintf(attempt, sizeof(attempt), "%d", job->attempts);
	snprintf(duration, sizeof(duration), "%lld", job->held->began ? (long long) (jw_now_ms() - job->held->began) : 0LL);
	jw_log_event(worker, level, event, "job_id", job->id, "job_type", job->type, "#attempt", attempt, "outcome", outcome,
				 "#duration_ms", duration, error ? "error" : NULL, error, NULL);
}
