# The files of jobq-top.  TOP_SHARED are files of jobq-helper that it uses, too.
TOP_SRCS = $(addprefix src/top/,main.c feed.c json_output.c link.c live.c screen.c sections.c table.c terminal.c text.c)
TOP_SHARED = src/helper/utf8.c
