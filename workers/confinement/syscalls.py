"""Numbers of the system calls that confined processes may not make.

Some are forbidden with certain arguments only. For the two architectures that Nereus runs on: ``name=x86_64/aarch64``,
-1 where the architecture lacks the call. Source: the kernel's ``unistd_64.h`` and ``asm-generic/unistd.h``.
"""

from __future__ import annotations

import platform

#: machine -> its AUDIT_ARCH (linux/audit.h) and its column below
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
#: the table is complete up to this number; calls beyond are answered as by a kernel that lacks them
NEWEST = 451

_FORBIDDEN = """
# start another program
execve=59/221 execveat=322/281
# make a process; threads come from clone
fork=57/-1 vfork=58/-1
# reach into other processes, or change their priority or limits
ptrace=101/117 process_vm_readv=310/270 process_vm_writev=311/271 process_madvise=440/440 kcmp=312/272
pidfd_open=434/434 pidfd_getfd=438/438 pidfd_send_signal=424/424 tkill=200/130 rt_sigqueueinfo=129/138
rt_tgsigqueueinfo=297/240 setpriority=141/140 sched_setscheduler=144/119 sched_setparam=142/118
sched_setattr=314/274 ioprio_set=251/30 migrate_pages=256/238 move_pages=279/239
# change files' owner, mode, times or attributes, which Landlock does not cover
chmod=90/-1 fchmod=91/52 fchmodat=268/53 chown=92/-1 fchown=93/55 lchown=94/-1 fchownat=260/54
setxattr=188/5 lsetxattr=189/6 fsetxattr=190/7 removexattr=197/14 lremovexattr=198/15 fremovexattr=199/16
utime=132/-1 utimes=235/-1 utimensat=280/88 futimesat=261/-1 truncate=76/45
# leave or rearrange the file system and other namespaces
unshare=272/97 setns=308/268 mount=165/40 umount2=166/39 pivot_root=155/41 chroot=161/51 open_tree=428/428
move_mount=429/429 fsopen=430/430 fsconfig=431/431 fsmount=432/432 fspick=433/433 mount_setattr=442/442
name_to_handle_at=303/264 open_by_handle_at=304/265 fanotify_init=300/262
# enter rarely used parts of the kernel, or change the machine
bpf=321/280 perf_event_open=298/241 userfaultfd=323/282 io_uring_setup=425/425 io_uring_enter=426/426
io_uring_register=427/427 keyctl=250/219 add_key=248/217 request_key=249/218 init_module=175/105
finit_module=313/273 delete_module=176/106 kexec_load=246/104 kexec_file_load=320/294 reboot=169/142
swapon=167/224 swapoff=168/225 acct=163/89 quotactl=179/60 quotactl_fd=443/443 syslog=103/116
settimeofday=164/170 clock_settime=227/112 clock_adjtime=305/266 adjtimex=159/171 sethostname=170/161
setdomainname=171/162 iopl=172/-1 ioperm=173/-1 modify_ldt=154/-1 personality=135/92 lookup_dcookie=212/18
vhangup=153/58 nfsservctl=180/42
# become another user
setuid=105/146 setgid=106/144 setreuid=113/145 setregid=114/143 setresuid=117/147 setresgid=119/149
setfsuid=122/151 setfsgid=123/152 setgroups=116/159 capset=126/91
# make what outlives the process without being a file
shmget=29/194 msgget=68/186 semget=64/190 mq_open=240/180
# reach another process through a socket
connect=42/203 bind=49/200 listen=50/201
"""

#: part of accepting connections, and what else only some confined processes may do
_SOME = """
socketpair=53/199 accept=43/202 accept4=288/242 memfd_create=319/279
clone=56/220 clone3=435/435 socket=41/198 kill=62/129 tgkill=234/131 prlimit64=302/261 ioctl=16/29
sched_setaffinity=203/122
"""

#: names of the calls that no confined process may make, unless its kind needs them
FORBIDDEN = frozenset(
    entry.split("=")[0] for line in _FORBIDDEN.splitlines() if line[:1] != "#" for entry in line.split()
)


def architecture() -> int | None:
    """This machine's AUDIT_ARCH; None where no filter can be made for it."""
    architecture_of = _ARCHITECTURES.get(platform.machine())
    return architecture_of and architecture_of[0]


def numbers() -> dict[str, int]:
    column = _ARCHITECTURES[platform.machine()][1]
    entries = [entry for line in (_FORBIDDEN + _SOME).splitlines() if line[:1] != "#" for entry in line.split()]
    found = {name: int(values.split("/")[column]) for name, values in (entry.split("=") for entry in entries)}
    return {name: number for name, number in found.items() if number >= 0}
