"""The part that the tools share: payload, ffmpeg, lines of descriptor 3, answer."""
import json
import os
import subprocess
import sys

payload = json.load(sys.stdin)


def report(**line):
    """Writes a line to descriptor 3."""
    os.write(3, (json.dumps(line) + "\n").encode())


def fail(error, code, retryable=True):
    """Ends the attempt."""
    report(error=error, code=code, retryable=retryable)
    sys.exit(1)


def answer(**result):
    """Writes the result of the job."""
    json.dump(result, sys.stdout)


def own_file(ext):
    """The file of this job: each attempt writes the same one."""
    return os.path.join(os.environ["MEDIA_DIR"], os.environ["JOBQ_JOB_ID"] + "." + ext)


def run(*command):
    """Runs a program; returns what it has written to stdout and to stderr."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    sys.stderr.write(done.stderr)
    if done.returncode:
        fail(done.stderr.strip().split("\n")[-1] or command[0] + " failed", command[0])
    return done.stdout, done.stderr


def ffmpeg(*arguments):
    """Runs ffmpeg on one processor; returns its log."""
    return run("ffmpeg", "-nostdin", "-hide_banner", "-nostats", "-y", "-threads", "1", *arguments)[1]


def probe(path):
    """What ffprobe says about a file."""
    return json.loads(run("ffprobe", "-v", "error", "-of", "json", "-show_format", "-show_streams", "-show_chapters", path)[0])
