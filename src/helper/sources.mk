# The files of jobq-helper.  HELPER_SHARED are also part of the extension.
HELPER_SRCS = src/helper/main.c src/helper/supervisor.c src/helper/queue_frame.c src/helper/job.c \
	src/helper/job_input.c src/helper/job_pipes.c src/helper/launch.c src/helper/starter.c \
	src/helper/program.c src/helper/trust.c src/helper/tree.c src/helper/output_capture.c src/helper/progress.c \
	src/helper/warm.c src/helper/answer.c src/helper/limit_hit.c src/helper/stall.c \
	src/helper/workdir.c src/helper/cleaner.c src/helper/orphans.c src/helper/cgroup.c \
	src/helper/setup.c src/helper/log_and_clock.c src/helper/close_from.c src/helper/frame.c \
	src/helper/json.c src/helper/utf8.c
HELPER_HDRS = src/helper/helper.h src/helper/launch.h src/helper/frame.h src/helper/program.h \
	src/helper/json.h src/helper/utf8.h
HELPER_SHARED = src/helper/frame.c src/helper/program.c src/helper/trust.c
