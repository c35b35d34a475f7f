# SPDX-License-Identifier: LGPL-2.1-or-later
"""Processes that share a quota: what each may hold, what is beside glake, and who has gone."""
import os
import shutil
import signal
import subprocess
import tempfile

from brokered import PROGRAM
from tap import HUNG, done, equal, has, ok, skip, start, until

NVML = os.environ["GLAKE_TEST_NVML_FOLDER"]
NAMES = "limit used held beside processes measured alone".split()


class Folder:
    """The directory of a user's sockets, and what NVML tells, MiB of each process."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="glake-quota-")
        self.list = os.path.join(self.path, "list")
        clean = {key: value for key, value in os.environ.items() if not key.startswith("GLAKE_")}
        self.env = {**clean, "XDG_RUNTIME_DIR": self.path, "GLAKE_TEST_NVML": self.list,
                    "LD_LIBRARY_PATH": NVML + ":" + clean.get("LD_LIBRARY_PATH", "")}

    def tell(self, **rows):
        self.write(self.list, "".join(f"{pid[1:]} {mib}\n" for pid, mib in rows.items()))

    def write(self, path, text):
        """As an orchestrator does, at one stroke; all with one time, as in images that are made alike each time."""
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.utime(path + ".new", (0, 0))
        os.rename(path + ".new", path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)


class Process:
    def __init__(self, folder, *settings, before=(), **keys):
        settings = ("soft.memory=1GiB", "pool.large_page=2MiB", "log.level=warning", *settings)
        self.run = subprocess.Popen([*before, PROGRAM, *settings], env={**folder.env, **keys}, text=True,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pid = self.run.pid
        self.said = self.run.stdout.readline().strip()

    def do(self, line):
        self.run.stdin.write(line + "\n")
        self.run.stdin.flush()
        return self.run.stdout.readline().strip()

    def quota(self):
        return dict(zip(NAMES, map(int, self.do("quota").split())))

    def figures(self, *names):
        quota = self.quota()
        return tuple(quota[name] for name in names)

    def end(self):
        """What it warned of."""
        out, said = self.run.communicate("quit\n", timeout=HUNG)
        return out.strip() + said.strip()


def alone():
    with Folder() as folder:
        one = Process(folder, "share.quota=50%")
        equal(one.figures("limit", "used", "processes", "alone"), (512, 0, 1, 0), "half of a GPU of 1 GiB")
        equal(one.do("alloc 500"), "0", "what fits")
        equal(one.figures("used", "held", "beside"), (500, 500, 0), "is counted")
        said = one.do("alloc 20")
        has(said, "refused -12", "what does not is refused")
        has(said, "the quota of 512 MiB (share.quota) is used up: 512 MiB by this process", "by its name")
        one.do("trim")
        equal(one.do("pass 8"), "0", "what the driver gives is counted")
        equal(one.figures("used", "beside"), (508, 8), "beside")
        has(one.do("pass 8"), "refused -122", "and refused")
        one.do("back 8")
        equal(one.do("alloc 12"), "1", "what it has back is free")
        one.do("free 0")
        equal(one.figures("used"), (512,), "idle memory is held")
        equal(one.do("alloc 400"), "0", "and used again")
        equal(one.do("limit 256MiB"), "0", "a lower limit is taken")
        equal(one.figures("limit", "used"), (256, 512), "below what is live")
        equal(one.do("check 0"), "right", "which stays")
        has(one.do("alloc 120"), "refused -12", "and does not grow")
        one.do("limit 1")
        equal(one.do("limit 0"), "0", "no limit")
        equal(one.do("alloc 300"), "2", "is none")
        equal(one.end(), "closed 0", "not a warning")
        mode = os.stat(os.path.join(folder.path, "glake", "quota")).st_mode & 0o777
        equal(mode, 0o600, "the file is the user's alone")
        none = Process(folder)
        equal(none.quota(), dict.fromkeys(NAMES, 0), "without the key there is no quota")
        has(none.do("limit 256MiB"), "refused -95", "nor can there be one later")
        equal(none.do("limit 0"), "0", "none stays none")
        none.end()


def together():
    with Folder() as folder:
        one, two = (Process(folder, "share.quota=512MiB") for _ in range(2))
        one.do("alloc 300")
        equal(one.figures("limit", "used", "processes"), two.figures("limit", "used", "processes"), "both see the same")
        equal(two.figures("used", "held", "processes"), (300, 0, 2), "what the other holds")
        said = two.do("alloc 300")
        has(said, "212 MiB by this process, with 0 bytes beside glake, 300 MiB by 1 others", "who has it is said")
        equal(two.do("alloc 212"), "0", "the rest is there")
        has(one.do("alloc 2"), "refused", "for one of them")
        one.run.kill()
        one.run.wait()
        equal(two.do("alloc 300"), "1", "what a dead process had is there at once")
        equal(two.figures("used", "processes"), (512, 1), "and it is counted no more")
        three = Process(folder, "share.quota=512MiB")
        has(three.do("alloc 2"), "refused", "for all processes that come")
        two.do("fork")
        two.run.kill()
        two.run.wait()
        equal(three.do("alloc 500"), "0", "a child keeps nothing of it")
        equal(three.end(), "closed 0", "without a word")
        four = Process(folder, "share.quota=512MiB")
        equal(four.figures("used", "processes"), (0, 1), "one that closes leaves nothing")
        other = Process(folder, "share.quota=512MiB", "share.quota_name=job7")
        four.do("alloc 500")
        equal(other.figures("used"), (0,), "another name is another quota")
        other.end()
        os.kill(four.pid, signal.SIGSTOP)
        five = Process(folder, "share.quota=512MiB")
        equal(five.figures("used", "processes"), (500, 2), "one that is stopped holds nobody up, and keeps what it has")
        os.kill(four.pid, signal.SIGCONT)
        five.end()
        four.end()


def removed():
    """The file goes while processes have it: they go on together, and who comes later counts anew."""
    with Folder() as folder:
        one, two = (Process(folder, "share.quota=512MiB") for _ in range(2))
        one.do("alloc 300")
        os.unlink(os.path.join(folder.path, "glake", "quota"))
        equal(two.figures("used", "processes", "alone"), (300, 2, 0), "those who are there go on together")
        has(two.do("alloc 300"), "refused -12", "and keep to the limit")
        equal([client.do("other").split()[0] for client in (one, two)], ["512", "512"], "of a GPU that they meet then too")
        equal(two.do("alloc 212"), "0", "with what is left of it")
        three = Process(folder, "share.quota=512MiB")
        equal(three.figures("used", "processes", "alone"), (0, 1, 0), "who comes later counts anew")
        equal(three.do("alloc 500"), "0", "with all of the limit")
        equal(one.figures("used", "processes"), (512, 2), "which the others do not see")
        two.run.kill()
        two.run.wait()
        has(one.do("alloc 100"), "refused -12", "one that is killed is counted until all of them have ended")
        four = Process(folder, "share.quota=512MiB")
        equal(four.figures("used", "processes"), (500, 2), "those who came later count together")
        equal(four.end() + three.end(), "closed 0" * 2, "without a word")
        said = one.end()
        equal(said.count("the file of the quota is gone"), 1, "the others say it once")
        has(said, "the processes that have it, 2, go on together", "and how many they are")


def beside():
    with Folder() as folder:
        one = Process(folder, "share.quota=512MiB")
        two = Process(folder, "share.quota=512MiB")
        folder.tell(**{f"p{one.pid}": 200, "p1": 400})
        equal(one.figures("used", "beside", "measured"), (200, 200, 1), "what NVML says is taken off")
        equal(two.figures("used", "measured"), (200, 0), "for others too; those that it does not list are not measured")
        has(one.do("pass 320"), "-122 320 MiB are refused: the quota of 512 MiB (share.quota) is used up: 200 MiB by "
            "this process, with 200 MiB beside glake, 0 bytes by 1 others", "it has no room")
        equal(one.do("pass 300"), "0", "beside it there is")
        has(two.do("alloc 14"), "refused", "what was let pass counts at once")
        equal(one.figures("beside"), (200,), "until it is measured")
        two.do("trim")
        one.do("alloc 100")
        folder.tell(**{f"p{one.pid}": 330})
        equal(one.figures("used", "held", "beside"), (330, 100, 230), "what glake holds is counted once")
        folder.tell(**{f"p{one.pid}": 90})
        equal(one.figures("used", "held", "beside"), (100, 100, 0), "and never less than it does")
        one.end()
        two.end()


def limits():
    with Folder() as folder:
        path = os.path.join(folder.path, "limits")
        folder.write(path, "# all\n100MiB\nGPU-50f70000-0000-0000-0000-000000000000 25% # this\nGPU-x 1MiB\n")
        one = Process(folder, f"share.quota_file={path}", "share.quota=50%")
        equal(one.figures("limit"), (256,), "the file has it, a line for the GPU")
        folder.write(path, "300MiB\n")
        equal(one.figures("limit"), (300,), "read again")
        one.do("alloc 280")
        folder.write(path, "200MiB\n")
        has(one.do("alloc 30"), "the quota of 200 MiB", "below what is live nothing grows")
        folder.write(path, "400MiB\n")
        equal(one.do("alloc 100"), "1", "above it does, at once")
        folder.write(path, "plenty\n")
        equal(one.figures("limit"), (512,), "a line that is none is left out")
        folder.write(path, "64 MiB\nGPU-50f70000-0000-0000-0000-000000000000 64 MiB\n64MiB 64MiB\n")
        equal(one.figures("limit"), (512,), "and so is one of other words")
        folder.write(path, "#" * 65535 + "\n64MiB\n")
        equal(one.figures("limit"), (512,), "a file that is too large is not read in part")
        folder.write(path, "64MiB\n")
        os.chmod(path, 0o622)
        equal(one.figures("limit"), (512,), "a file that others may write is not read")
        os.remove(path)
        equal(one.figures("limit"), (512,), "what held before holds")
        said = one.end()
        has(said, "'plenty' is not a size, nor a part", "it is said what is wrong")
        has(said, "a line has a limit, or the UUID of a GPU and one", "of the words too")
        has(said, "cannot be read, has 64KiB, or others may write it", "and of the file")


def refused():
    """Where the file cannot be had."""
    with Folder() as folder:
        os.mkdir(os.path.join(folder.path, "glake"), 0o700)
        file = os.path.join(folder.path, "glake", "quota")
        for text, mode, why in (("", 0o644, "open to others"), ("x", 0o600, "of another version")):
            with open(file, "w", encoding="utf-8") as made:
                made.write(text)
            os.chmod(file, mode)
            one = Process(folder, "share.quota=100MiB")
            equal(one.figures("limit", "alone", "processes"), (100, 1, 1), f"{why}: the process alone has it")
            has(one.do("alloc 120"), "refused", "and keeps to it")
            has(one.end(), why, "it says why")
        os.truncate(file, 0)
        Process(folder, "share.quota=100MiB").end()
        with open(file, "r+b") as made:
            made.write(bytes(os.path.getsize(file)))
        one, two = (Process(folder, "share.quota=100MiB") for _ in range(2))
        equal(one.figures("alone", "processes"), (0, 2), "one whose maker ended before he wrote in it is made")
        one.end()
        two.end()
        os.remove(file)
        os.symlink(folder.list, file)
        one = Process(folder, "share.quota=100MiB")
        equal(one.figures("alone"), (1,), "a link is not followed")
        one.end()
        os.chmod(folder.path, 0o777)
        one = Process(folder, "share.quota=100MiB")
        equal(one.figures("limit", "alone"), (100, 1), "nor is there a file where others may write")
        has(one.end(), "others may write in", "which is said")


def walls():
    """Containers: process ids of their own, and the directory mounted elsewhere."""
    wall = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec",
            'mkdir "$1/in"; mount --bind "$1" "$1/in"; export XDG_RUNTIME_DIR="$1/in"; shift; exec "$@"', "sh"]
    with Folder() as folder:
        tried = subprocess.run([*wall, folder.path, "true"], check=False, capture_output=True)
        if tried.returncode:
            skip("over the walls of a container", "no namespaces for users here")
            return
        os.rmdir(os.path.join(folder.path, "in"))
        one = Process(folder, "share.quota=512MiB")
        two = Process(folder, "share.quota=512MiB", before=[*wall, folder.path])
        one.do("alloc 300")
        equal(two.figures("used", "processes", "alone"), (300, 2, 0), "a container sees the same quota")
        equal(two.do("alloc 200"), "0", "takes of it")
        equal(one.figures("used"), (500,), "and is seen")
        ok(one.do("alloc 100").startswith("refused"), "by those outside")
        two.run.kill()
        ok(until(lambda: one.figures("processes") == (1,)), "it ends")
        equal(one.do("alloc 200"), "1", "what it had is free when it has ended")
        one.end()


start()
alone()
together()
removed()
beside()
limits()
refused()
walls()
done()
