/*
 * terminal.c
 *	  The terminal: raw keys, the alternate screen, signals.
 *
 * Signals are blocked except in ppoll, so none is missed between a look at the
 * flags and the wait.  SIGTERM, SIGINT, SIGHUP and SIGQUIT end the program by
 * way of terminal_close; SIGTSTP stops it with the terminal as it was.
 */
#include "top/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "top/link.h"

static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};

#define N_SIGNALS ((int) (sizeof(signals) / sizeof(signals[0])))

static struct termios before;
static bool is_open;
static sigset_t open_mask;		/* in ppoll */
static volatile sig_atomic_t end_signal;
static volatile sig_atomic_t stop_wanted;
static volatile sig_atomic_t size_changed;
static char keys[64];
static int	n_keys;

static void
handle_signal(int signo)
{
	if (signo == SIGWINCH)
		size_changed = 1;
	else if (signo == SIGTSTP)
		stop_wanted = 1;
	else
		end_signal = signo;
}

static void
watch_signals(void)
{
	struct sigaction action = {.sa_handler = handle_signal};
	sigset_t	blocked;

	sigemptyset(&blocked);
	for (int k = 0; k < N_SIGNALS; k++)
	{
		sigaction(signals[k], &action, NULL);
		sigaddset(&blocked, signals[k]);
	}
	sigprocmask(SIG_BLOCK, &blocked, &open_mask);
	for (int k = 0; k < N_SIGNALS; k++)
		sigdelset(&open_mask, signals[k]);
}

static void
write_all(const char *s, size_t len)
{
	while (len > 0)
	{
		ssize_t		n = write(STDOUT_FILENO, s, len);

		if (n < 0 && errno == EAGAIN)
		{
			struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};

			if (poll(&p, 1, 1000) > 0)
				continue;
		}
		if (n < 0 && errno != EINTR)
			return;
		if (n > 0)
		{
			s += n;
			len -= (size_t) n;
		}
	}
}

/* Alternate screen, no cursor, no wrapping. */
static void
enter(void)
{
	static const char on[] = "\033[?1049h\033[?25l\033[?7l\033[2J";
	struct termios raw = before;

	raw.c_lflag &= ~(tcflag_t) (ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	write_all(on, sizeof(on) - 1);
	is_open = true;
}

bool
terminal_open(void)
{
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before) < 0)
		return false;
	watch_signals();
	atexit(terminal_close);
	enter();
	return true;
}

void
terminal_close(void)
{
	static const char off[] = "\033[m\033[?7h\033[?25h\033[?1049l";

	if (!is_open)
		return;
	is_open = false;
	write_all(off, sizeof(off) - 1);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

void
terminal_size(int *rows, int *columns)
{
	struct winsize size = {0};

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	*rows = size.ws_row > 0 ? size.ws_row : 24;
	*columns = size.ws_col > 0 ? size.ws_col : 80;
}

void
terminal_write(const Buf *frame)
{
	write_all(frame->s, frame->len);
}

void
terminal_wait(int fd, short events, int64_t until)
{
	struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = fd, .events = events}};
	int64_t		ms = until == NEVER ? 1000 : until - now_ms();
	struct timespec limit;

	if (ms < 0)
		ms = 0;
	limit = (struct timespec) {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	if (ppoll(p, 2, &limit, &open_mask) > 0 && p[0].revents)
	{
		ssize_t		n = read(STDIN_FILENO, keys + n_keys, sizeof(keys) - (size_t) n_keys);

		if (n > 0)
			n_keys += (int) n;
		else if (n == 0 ? (p[0].revents & POLLHUP) != 0 : errno != EINTR && errno != EAGAIN)
			end_signal = SIGHUP;
	}
}

static int
take(int n, int key)
{
	n_keys -= n;
	memmove(keys, keys + n, (size_t) n_keys);
	return key;
}

/* An escape sequence: up and down, others are skipped to their last byte. */
static int
take_sequence(void)
{
	int			n = 2;

	while (n < n_keys && keys[1] == '[' && (keys[n] < '@' || keys[n] > '~'))
		n++;
	if (n >= n_keys)
		return take(n_keys, KEY_NONE);
	return take(n + 1, keys[n] == 'A' ? KEY_UP : keys[n] == 'B' ? KEY_DOWN : -1);
}

int
terminal_key(void)
{
	if (n_keys == 0)
		return KEY_NONE;
	if (keys[0] == KEY_ESCAPE && n_keys > 1 && (keys[1] == '[' || keys[1] == 'O'))
		return take_sequence();
	if (keys[0] == '\r' || keys[0] == '\n')
		return take(1, KEY_ENTER);
	if (keys[0] == 0x7f || keys[0] == '\b')
		return take(1, KEY_BACKSPACE);
	return take(1, keys[0] ? (unsigned char) keys[0] : -1);
}

bool
terminal_changed(void)
{
	bool		changed = size_changed;

	size_changed = 0;
	return changed;
}

int
terminal_end(void)
{
	return end_signal;
}

void
terminal_suspend(void)
{
	if (!stop_wanted)
		return;
	stop_wanted = 0;
	terminal_close();
	raise(SIGSTOP);
	tcgetattr(STDIN_FILENO, &before);
	enter();
	size_changed = 1;
}

char *
terminal_password(const char *prompt)
{
	struct termios mode, quiet;
	char		line[1024];
	FILE	   *tty = fopen("/dev/tty", "r+e");
	bool		ok;

	if (!tty)
		return NULL;
	tcgetattr(fileno(tty), &mode);
	quiet = mode;
	quiet.c_lflag &= ~(tcflag_t) ECHO;
	tcsetattr(fileno(tty), TCSAFLUSH, &quiet);
	fputs(prompt, tty);
	fflush(tty);
	ok = fgets(line, sizeof(line), tty) != NULL;
	tcsetattr(fileno(tty), TCSAFLUSH, &mode);
	fputs("\n", tty);
	fclose(tty);
	if (!ok)
		return NULL;
	line[strcspn(line, "\n")] = '\0';
	return text_copy(line);
}
