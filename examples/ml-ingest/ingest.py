"""The heavy work: a function for each job type, from a URL to a result.  It knows nothing of jobs.

Skipped is for what no other attempt can change; any other exception may pass.
"""
import hashlib, os, signal, subprocess, tempfile, threading
from contextvars import ContextVar
from urllib.error import HTTPError
from urllib.request import urlopen

MOST = 200_000      # characters of a text that are kept
MOST_BYTES = 100 << 20      # of a file that is fetched
MODEL = "/usr/share/pocketsphinx/model/en-us/"
# set by worker.py
limits = ContextVar("limits", default=())       # in front of each command
check = ContextVar("check", default=lambda: None)       # raises when the work must stop


class Skipped(Exception):
    pass


def fetch(url):
    """Returns what the URL has now."""
    if not url.startswith(("http://", "https://")):
        raise Skipped("no web address")
    content = bytearray()
    try:
        with urlopen(url, timeout=20) as answer:
            length = answer.length      # None: until its end
            while piece := answer.read1(1 << 16):
                check.get()()
                content += piece
                if len(content) > MOST_BYTES:
                    raise Skipped("the file is too large")
        if length is not None and len(content) < length:
            raise ConnectionError("the answer broke off")
        return bytes(content)
    except HTTPError as error:
        if error.code in (401, 403, 404, 410):
            raise Skipped(f"the host answers {error.code}") from error
        raise


def run(*command):
    """Runs a program; returns its stdout.  When the work must stop, its process group is killed."""
    with subprocess.Popen([*limits.get(), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          process_group=0, env={**os.environ, "OMP_THREAD_LIMIT": "1"}) as program:
        try:
            while program.returncode is None:
                try:
                    output, errors = program.communicate(timeout=0.2)
                except subprocess.TimeoutExpired:
                    check.get()()
        except BaseException:
            os.killpg(program.pid, signal.SIGKILL)
            raise
    if program.returncode:
        raise RuntimeError(f"{command[0]}: exit code {program.returncode}: {errors.decode()[-500:]}")
    return output


def ocr(path):
    return run("tesseract", path, "stdout").decode()


def kept(text):
    """Returns what a row keeps of a text; jsonb takes no U+0000."""
    return text.replace("\0", "")[:MOST]


def extract_pdf(url):
    with tempfile.TemporaryDirectory() as directory:
        path = save(directory, fetch(url), b"%PDF")
        text = run("pdftotext", "-layout", path, "-").decode()
        if len(text.strip()) < 200:
            run("pdftoppm", "-r", "150", "-gray", "-png", path, f"{directory}/page")
            pages = sorted(name for name in os.listdir(directory) if name.startswith("page"))
            text = "\f".join(ocr(f"{directory}/{page}") for page in pages)
    return {"body_text": kept(text)}


def extract_image(url):
    with tempfile.TemporaryDirectory() as directory:
        return {"body_text": kept(ocr(save(directory, fetch(url), b"\x89PNG", b"\xff\xd8\xff", b"II*", b"MM\0*")))}


def save(directory, content, *beginnings):
    if not content.startswith(beginnings):
        raise Skipped("the file is not of its type")
    with open(f"{directory}/file", "wb") as file:
        file.write(content)
    return file.name


def sync_source_doc(url):
    content = fetch(url)
    return {"sha256": hashlib.sha256(content).hexdigest(), "body_text": kept(content.decode(errors="replace"))}


# ingest.video: three functions, behind which any other model fits.

def metadata(path):
    """Returns the duration in seconds."""
    return {"seconds": float(run("ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0", path))}


def audio(path):
    """Returns the sound as the model needs it: 16 kHz, one channel, 16 bits."""
    return run("ffmpeg", "-nostdin", "-v", "error", "-i", path, "-ac", "1", "-ar", "16000", "-f", "s16le", "-")


def transcript(sound, model=[], in_use=threading.Lock()):
    """Returns the words, and the number of texts of this model.  It is loaded once and stays, for one at a time."""
    while not in_use.acquire(timeout=1):
        check.get()()
    try:
        if not model:
            from pocketsphinx import Decoder
            config = Decoder.default_config()
            for name, value in ("-hmm", "en-us"), ("-lm", "en-us.lm.bin"), ("-dict", "cmudict-en-us.dict"):
                config.set_string(name, MODEL + value)
            config.set_string("-logfn", "/dev/null")
            model[:] = Decoder(config), 0
        model[1] += 1
        model[0].start_utt()
        try:
            for second in range(0, len(sound), 32000):      # other threads run in between
                check.get()()
                model[0].process_raw(sound[second:second + 32000], False, False)
        finally:
            model[0].end_utt()
        return model[0].hyp().hypstr if model[0].hyp() else "", model[1]
    finally:
        in_use.release()


def ingest_video(url):
    with tempfile.TemporaryDirectory() as directory:
        with open(f"{directory}/video", "wb") as file:
            file.write(fetch(url))
        text, uses = transcript(audio(file.name))
        return {**metadata(file.name), "model_uses": uses, "body_text": kept(text)}


TYPES = {"extract.pdf": extract_pdf, "extract.image": extract_image, "ingest.video": ingest_video,
         "sync.source_doc": sync_source_doc}
