/*
 * terminal.h
 *	  The terminal: raw keys, the alternate screen, signals.
 */
#ifndef JOBQ_TOP_TERMINAL_H
#define JOBQ_TOP_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>

#include "top/text.h"

enum
{
	KEY_NONE = 0, KEY_ESCAPE = 27, KEY_UP = 256, KEY_DOWN, KEY_ENTER, KEY_BACKSPACE
};

/* False: standard input or output is no terminal. */
extern bool terminal_open(void);
extern void terminal_close(void);
extern void terminal_size(int *rows, int *columns);
extern void terminal_write(const Buf *frame);

/* Waits for a key, a signal, the socket (-1: none) or the time of now_ms(). */
extern void terminal_wait(int fd, short events, int64_t until);

/* The next key, KEY_NONE: none is there. */
extern int	terminal_key(void);

/* True once after a change of size, or a return to the foreground. */
extern bool terminal_changed(void);

/* The signal that ends the program, 0: none; the end of the input counts as SIGHUP. */
extern int	terminal_end(void);

/* Stops the process if SIGTSTP came, with the terminal as it was. */
extern void terminal_suspend(void);

/* Reads a line without echo from the terminal; NULL: there is none. */
extern char *terminal_password(const char *prompt);

#endif
