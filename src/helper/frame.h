/*
 * frame.h
 *	  What the exec worker and jobq-helper say to each other, and its bytes.
 *
 * Needs nothing of the server: it is compiled into the extension and into the helper.  PROTOCOL.md
 * describes the conversation.  Encoding appends to a FrameBuf, the queue of bytes to send; decoding
 * is incremental: bytes go into a FrameDecoder as they arrive, whole frames come out.  Nothing here
 * blocks, and no length that a peer claims is believed: memory grows with the bytes that have arrived.
 */
#ifndef JOBQ_FRAME_H
#define JOBQ_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FRAME_VERSION		2
#define FRAME_OLD_VERSION	1	/* of the release before: no PING, PONG, OUTPUT_LIMIT, STALLED, FrameExit.error,
								 * FrameStart.stall_us */
#define FRAME_FD			3	/* the helper's end of the socketpair */
#define FRAME_HEADER		6	/* u32 length of what follows it, u8 version, u8 type */
#define FRAME_MAX_DEFAULT	(4 * 1024 * 1024 + 256 * 1024)
#define FRAME_MAX_LIMIT		(512 * 1024 * 1024)
#define FRAME_MAX_LINE		(64 * 1024) /* of an event's text */
#define FRAME_MAX_LIST		8192	/* elements of argv or env */
#define FRAME_MAX_ID		64
#define FRAME_STDERR_TAIL	8192
#define FRAME_BAD_OUTPUT	4096	/* so much of an output that was refused is kept */

typedef enum FrameType
{
	FRAME_HELLO = 1,			/* both ways, the first frame of each side */
	FRAME_START,				/* worker -> helper */
	FRAME_CANCEL,
	FRAME_SHUTDOWN,
	FRAME_STARTED,				/* helper -> worker */
	FRAME_EVENT,
	FRAME_EXIT,
	FRAME_PING,					/* worker -> helper: answer at once */
	FRAME_PONG					/* helper -> worker */
} FrameType;
#define FRAME_LAST_TYPE FRAME_PONG

/* Bytes, not terminated.  Points into the decoder's buffer, or to what the caller encodes. */
typedef struct FrameText
{
	const char *data;
	uint32_t	len;
} FrameText;

/* count strings one after another, each ended by a NUL. */
typedef struct FrameList
{
	const char *data;
	uint32_t	len;
	uint32_t	count;
} FrameList;

typedef struct FrameHello
{
	uint32_t	max_frame;		/* the longest frame either side may send from now on */
	uint32_t	max_jobs;		/* helper: so many at once, more are refused; worker: 0 */
	uint32_t	pid;
	FrameText	workdir;		/* worker: work directories are made below it (absolute); helper: empty */
} FrameHello;

typedef enum FrameOutputKind
{
	FRAME_OUTPUT_JSON,			/* same order as OutputKind in job_types.h */
	FRAME_OUTPUT_TEXT,
	FRAME_OUTPUT_NONE
} FrameOutputKind;

typedef struct FrameStart
{
	uint64_t	job;			/* chosen by the worker, unique among those that run */
	FrameList	argv;			/* at least one */
	FrameList	env;			/* complete, but for JOBQ_WORKDIR, TMPDIR, HOME: the helper sets these */
	FrameText	tool_path;		/* where an argv[0] without a slash is looked up */
	FrameText	stdin_data;
	uint64_t	timeout_us;		/* 0: none */
	uint64_t	kill_grace_us;
	uint64_t	memory_max;		/* bytes, 0: no limit */
	uint32_t	max_output;		/* bytes of stdout */
	uint32_t	stderr_tail;	/* bytes of stderr to keep: FRAME_STDERR_TAIL */
	uint32_t	nofile;			/* 0: the helper's own */
	uint32_t	log_lines;		/* so many lines of stderr are also sent as events; 0: none */
	uint32_t	cpu_seconds;	/* of each process, 0: no limit */
	uint8_t		output;			/* FrameOutputKind */

	/* warm: an instance runs one job after another */
	uint32_t	warm;			/* so many of them at most, 0: one process for this job alone */
	uint32_t	warm_max_jobs;	/* of one instance, 0: no limit */
	uint64_t	warm_memory;	/* bytes that one may keep between jobs, 0: no limit */
	uint64_t	warm_idle_us;	/* without a job they leave then */
	uint64_t	pool;			/* which instances: what else is above is the same for all of its jobs */
	FrameText	id;				/* of the job, as the tool is to answer it; stdin_data is the line it reads */
	uint64_t	stall_us;		/* so long without a byte of output ends a job, 0: none does */
} FrameStart;

typedef enum FrameStopReason
{
	FRAME_STOP_CANCEL = 1,
	FRAME_STOP_SHUTDOWN,
	FRAME_STOP_TIMEOUT,
	FRAME_STOP_OUTPUT,			/* this and the next are never in a CANCEL */
	FRAME_STOP_STALL
} FrameStopReason;

typedef struct FrameCancel
{
	uint64_t	job;
	uint64_t	grace_us;		/* between TERM and KILL */
	uint8_t		reason;			/* FrameStopReason */
} FrameCancel;

typedef struct FrameShutdown
{
	uint64_t	grace_us;
} FrameShutdown;

typedef struct FrameStarted
{
	uint64_t	job;
	uint32_t	pid;
} FrameStarted;

typedef enum FrameEventKind
{
	FRAME_EVENT_PROGRESS = 1,	/* text: the line of fd 3, one JSON object with that key */
	FRAME_EVENT_LOG,
	FRAME_EVENT_ARTIFACT,
	FRAME_EVENT_STDERR			/* text: one line of stderr, escaped as in stderr_tail */
} FrameEventKind;

typedef struct FrameEvent
{
	uint64_t	job;
	FrameText text;
	uint8_t		kind;			/* FrameEventKind */
} FrameEvent;

typedef enum FrameExitKind
{
	FRAME_EXITED = 1,			/* value: exit code */
	FRAME_SIGNALLED,			/* value: signal */
	FRAME_START_FAILED,			/* value: errno; message says what failed.  The node's fault */
	FRAME_TIMEOUT,				/* stopped by us; value: exit code, or 128 + signal */
	FRAME_CANCELLED,
	FRAME_SHUTDOWN_KILL,
	FRAME_ANSWERED,				/* warm: output is the line, when verdict says OK */
	FRAME_OUTPUT_LIMIT,			/* stdout, or the answer, went over max_output; value: 0 */
	FRAME_STALLED				/* stopped by us, silent for stall_us; value as of TIMEOUT */
} FrameExitKind;

/* Which limit the tool has probably run into, when it has failed. */
typedef enum FrameLimit
{
	FRAME_LIMIT_NONE,
	FRAME_LIMIT_MEMORY,
	FRAME_LIMIT_CPU,
	FRAME_LIMIT_FILES
} FrameLimit;

typedef enum FrameVerdict
{
	FRAME_OUT_OK,				/* json: one valid value; text: valid; none: nothing was asked */
	FRAME_OUT_EMPTY,			/* json: white space only */
	FRAME_OUT_BAD_JSON,
	FRAME_OUT_NOT_UTF8,			/* text: output holds the text with U+FFFD for what was invalid */
	FRAME_OUT_NUL,				/* text: output holds the text without them */
	FRAME_OUT_TRUNCATED,		/* over max_output, raw or as jsonb would print it */
	FRAME_OUT_TOO_DEEP,
	FRAME_OUT_NO_ANSWER			/* warm: JSON, but no answer to this job */
} FrameVerdict;

typedef struct FrameExit
{
	uint64_t	job;
	uint64_t	duration_us;
	uint64_t	utime_us;		/* of the main process and the children it waited for */
	uint64_t	stime_us;
	uint64_t	maxrss_kb;
	uint64_t	stdout_bytes;	/* all that was written, kept or not */
	uint64_t	stderr_bytes;
	int32_t		value;
	uint32_t	left_processes; /* so many were left when the tool had finished, and were killed */
	uint32_t	bad_lines;		/* of fd 3 */
	uint8_t		kind;			/* FrameExitKind */
	uint8_t		verdict;		/* FrameVerdict */
	uint8_t		limit;			/* FrameLimit */
	FrameText	output;			/* valid UTF-8 without NUL; refused: its first FRAME_BAD_OUTPUT bytes */
	FrameText	stderr_tail;	/* valid UTF-8, control characters escaped but for tab and newline */
	FrameText	message;		/* why: of a failed start or a refused output; else empty */
	FrameText	error;			/* the last line of fd 3 with that key; empty: none */
} FrameExit;

typedef struct Frame
{
	uint8_t		type;			/* FrameType */
	uint8_t		version;		/* 0: FRAME_VERSION */
	union
	{
		FrameHello	hello;
		FrameStart	start;
		FrameCancel cancel;
		FrameShutdown shutdown;
		FrameStarted started;
		FrameEvent	event;
		FrameExit	exit;
	}			u;
} Frame;

/* Bytes waiting to be sent (or a list being built).  All zero is a valid empty one. */
typedef struct FrameBuf
{
	char	   *data;
	size_t		start;			/* sent so far */
	size_t		end;
	size_t		cap;
	bool		failed;			/* out of memory: from here on nothing is added */
} FrameBuf;

typedef struct FrameDecoder
{
	char	   *data;
	size_t		start;
	size_t		end;
	size_t		cap;
	uint32_t	max_frame;
	const char *error;			/* after FRAME_BAD */
} FrameDecoder;

typedef enum FrameStatus
{
	FRAME_MORE,					/* no whole frame yet */
	FRAME_READY,
	FRAME_BAD					/* the peer is broken: close the socket */
} FrameStatus;

typedef enum FrameIo
{
	FRAME_IO_DONE,				/* send: all is sent; recv: bytes have come */
	FRAME_IO_AGAIN,				/* would block */
	FRAME_IO_EOF,
	FRAME_IO_ERROR				/* errno */
} FrameIo;

/* Appends one frame; false: out of memory, or longer than max_frame (then nothing is appended). */
extern bool frame_encode(FrameBuf *buf, const Frame *frame, uint32_t max_frame);

/* Decodes what follows the length: version, type, fields. */
extern bool frame_decode(const char *body, size_t len, Frame *frame);

extern void frame_decoder_init(FrameDecoder *decoder, uint32_t max_frame);
extern void frame_decoder_free(FrameDecoder *decoder);

/* Copies bytes in; false: out of memory. */
extern bool frame_decoder_feed(FrameDecoder *decoder, const char *data, size_t len);

/* The next whole frame; its texts stay valid until the next call on this decoder. */
extern FrameStatus frame_decoder_next(FrameDecoder *decoder, Frame *frame);

/* One non-blocking step each; neither raises SIGPIPE. */
extern FrameIo frame_recv(FrameDecoder *decoder, int fd);
extern FrameIo frame_send(FrameBuf *buf, int fd);
extern size_t frame_pending(const FrameBuf *buf);

extern bool frame_buf_append(FrameBuf *buf, const void *data, size_t len);
extern void frame_buf_free(FrameBuf *buf);

/* Adds a string to a list that is built in buf; then frame_list gives the list. */
extern bool frame_list_append(FrameBuf *buf, const char *item);
extern FrameList frame_list(const FrameBuf *buf);

/* Walks: item NULL gives the first, NULL is returned at the end. */
extern const char *frame_list_next(const FrameList *list, const char *item);
extern FrameText frame_text(const char *string);

#endif
