/*
 * frame.h
 *	  The frames between exec worker and jobq-helper, and their bytes.
 *
 * Needs nothing of the server: it is compiled into the extension and into the
 * helper.  PROTOCOL.md describes the conversation.  Encoding appends to a
 * FrameBuf, the queue of bytes to send.  Decoding is incremental: bytes go
 * into a FrameDecoder as they arrive, whole frames come out.  No function here
 * blocks.  No claimed length is trusted: memory grows with the bytes that have
 * arrived.
 */
#ifndef JOBQ_FRAME_H
#define JOBQ_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FRAME_VERSION		2
#define FRAME_FD			3	/* the helper's end of the socketpair */
#define FRAME_HEADER		6	/* u32 length of the rest, u8 version, u8
								 * type */
#define FRAME_MAX_DEFAULT	(4 * 1024 * 1024 + 256 * 1024)
#define FRAME_MAX_LIMIT		(512 * 1024 * 1024)
#define FRAME_MAX_LINE		(64 * 1024) /* of an event's text */
#define FRAME_MAX_LIST		8192	/* elements of argv or env */
#define FRAME_MAX_ID		64
#define FRAME_STDERR_TAIL	8192
#define FRAME_BAD_OUTPUT	4096	/* bytes kept of a refused output */

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
#define FRAME_LAST_TYPE FRAME_PONG	/* for unit tests */

/*
 * Bytes, not terminated.  Points into the decoder's buffer, or to the caller's
 * memory.
 */
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
	uint32_t	max_frame;		/* longest frame of either side from now on */
	uint32_t	max_jobs;		/* helper: maximal number of jobs; worker: 0 */
	uint32_t	pid;
	FrameText	workdir;		/* worker: absolute parent of work
								 * directories; helper: empty */
} FrameHello;

typedef enum FrameOutputKind
{
	FRAME_OUTPUT_JSON,			/* same order as OutputKind in job_types.h */
	FRAME_OUTPUT_TEXT,
	FRAME_OUTPUT_NONE
} FrameOutputKind;

typedef struct FrameStart
{
	uint64_t	job;			/* chosen by the worker, unique among running jobs */
	FrameList	argv;			/* at least one */
	FrameList	env;			/* complete, except JOBQ_WORKDIR, TMPDIR and
								 * HOME, which the helper sets */
	FrameText	tool_path;		/* searched for an argv[0] without a slash */
	FrameText	stdin_data;
	uint64_t	timeout_us;		/* 0: none */
	uint64_t	kill_grace_us;
	uint64_t	memory_max;		/* bytes, 0: no limit */
	uint32_t	max_output;		/* bytes of stdout */
	uint32_t	stderr_tail;	/* bytes of stderr to keep:
								 * FRAME_STDERR_TAIL */
	uint32_t	nofile;			/* 0: the helper's own */
	uint32_t	log_lines;		/* lines of stderr also sent as events; 0:
								 * none */
	uint32_t	cpu_seconds;	/* of each process, 0: no limit */
	uint8_t		output;			/* FrameOutputKind */

	/* warm: an instance runs one job after another */
	uint32_t	warm;			/* maximal number of instances, 0: a process
								 * for this job alone */
	uint32_t	warm_max_jobs;	/* of one instance, 0: no limit */
	uint64_t	warm_memory;	/* bytes that an instance may keep between
								 * jobs, 0: no limit */
	uint64_t	warm_idle_us;	/* idle instances exit after this time */
	uint64_t	pool;			/* identifies the instances; all else above
								 * is equal for all its jobs */
	FrameText	id;				/* of the job, for the answer; stdin_data is
								 * the line to read */
	uint64_t	stall_us;		/* maximal silence, 0: no limit */
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
	FRAME_EVENT_PROGRESS = 1,	/* text: the line of fd 3, a JSON object
								 * with that key */
	FRAME_EVENT_LOG,
	FRAME_EVENT_ARTIFACT,
	FRAME_EVENT_STDERR			/* text: one line of stderr, escaped as in
								 * stderr_tail */
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
	FRAME_START_FAILED,			/* value: errno; message: the failed step.
								 * A fault of the node */
	FRAME_TIMEOUT,				/* stopped by the helper; value: exit code,
								 * or 128 + signal */
	FRAME_CANCELLED,
	FRAME_SHUTDOWN_KILL,
	FRAME_ANSWERED,				/* warm: output is the line, if verdict is OK */
	FRAME_OUTPUT_LIMIT,			/* stdout, or the answer, went over
								 * max_output; value: 0 */
	FRAME_STALLED				/* silent for stall_us; value as of TIMEOUT */
} FrameExitKind;

/* The limit that probably made the tool fail. */
typedef enum FrameLimit
{
	FRAME_LIMIT_NONE,
	FRAME_LIMIT_MEMORY,
	FRAME_LIMIT_CPU,
	FRAME_LIMIT_FILES
} FrameLimit;

typedef enum FrameVerdict
{
	FRAME_OUT_OK,				/* json: one valid value; text: valid; none:
								 * not checked */
	FRAME_OUT_EMPTY,			/* json: white space only */
	FRAME_OUT_BAD_JSON,
	FRAME_OUT_NOT_UTF8,			/* text: output has U+FFFD for invalid bytes */
	FRAME_OUT_NUL,				/* text: output has the text without them */
	FRAME_OUT_TRUNCATED,		/* over max_output, raw or as jsonb prints
								 * it */
	FRAME_OUT_TOO_DEEP,
	FRAME_OUT_NO_ANSWER			/* warm: JSON, but no answer to this job */
} FrameVerdict;

typedef struct FrameExit
{
	uint64_t	job;
	uint64_t	duration_us;
	uint64_t	utime_us;		/* of the main process and children that it
								 * waited for */
	uint64_t	stime_us;
	uint64_t	maxrss_kb;
	uint64_t	stdout_bytes;	/* bytes written, kept or not */
	uint64_t	stderr_bytes;
	int32_t		value;
	uint32_t	left_processes; /* processes left at the end, and killed */
	uint32_t	bad_lines;		/* of fd 3 */
	uint8_t		kind;			/* FrameExitKind */
	uint8_t		verdict;		/* FrameVerdict */
	uint8_t		limit;			/* FrameLimit */
	FrameText	output;			/* valid UTF-8 without NUL; refused: its
								 * first FRAME_BAD_OUTPUT bytes */
	FrameText	stderr_tail;	/* valid UTF-8, control characters except
								 * tab and newline escaped */
	FrameText	message;		/* reason of a failed start or refused
								 * output; else empty */
	FrameText	error;			/* the last error line of fd 3; empty: none */
} FrameExit;

typedef struct Frame
{
	uint8_t		type;			/* FrameType */
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

/* Bytes to send (or a list under construction). All zero is an empty one. */
typedef struct FrameBuf
{
	char	   *data;
	size_t		start;			/* bytes sent */
	size_t		end;
	size_t		cap;
	bool		failed;			/* out of memory: nothing is added any more */
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
	FRAME_MORE,					/* no complete frame yet */
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

/*
 * Appends one frame.  Returns false, with nothing appended, if memory is short
 * or the frame is longer than max_frame.
 */
extern bool frame_encode(FrameBuf *buf, const Frame *frame, uint32_t max_frame);

/* Decodes the bytes after the length: version, type, fields. */
extern bool frame_decode(const char *body, size_t len, Frame *frame);

extern void frame_decoder_init(FrameDecoder *decoder, uint32_t max_frame);
extern void frame_decoder_free(FrameDecoder *decoder);

/* Copies bytes in, for unit tests and fuzzers. false: out of memory. */
extern bool frame_decoder_feed(FrameDecoder *decoder, const char *data, size_t len);

/*
 * Returns the next complete frame.  Its texts stay valid until the next call
 * on this decoder.
 */
extern FrameStatus frame_decoder_next(FrameDecoder *decoder, Frame *frame);

/* Receives or sends in one non-blocking step. Neither raises SIGPIPE. */
extern FrameIo frame_recv(FrameDecoder *decoder, int fd);
extern FrameIo frame_send(FrameBuf *buf, int fd);
extern size_t frame_pending(const FrameBuf *buf);

extern bool frame_buf_append(FrameBuf *buf, const void *data, size_t len);
extern void frame_buf_free(FrameBuf *buf);

/*
 * For unit tests: adds a string to a list under construction in buf;
 * frame_list() returns the list.
 */
extern bool frame_list_append(FrameBuf *buf, const char *item);
extern FrameList frame_list(const FrameBuf *buf);

/* Returns the string after item, NULL at the end. item NULL: the first. */
extern const char *frame_list_next(const FrameList *list, const char *item);
extern FrameText frame_text(const char *string);

#endif
