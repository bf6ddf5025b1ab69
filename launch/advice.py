"""What a failure of gcloud is, and what to do about it: the first row whose pattern its output holds.

{name}, {zone}, {type}, {tier} and {project} are the pod's, the last as a flag; {0}, {1} are the pattern's own groups.
A row's kind is what `watch` goes by:

  none     there is no such pod
  full     there is no room: the only thing that it waits for without end
  silent   a worker does not answer
  gone     the pod is lost
  away     it comes back by itself, or is lost
  later    it passes by itself
  unclear  it may pass, or not
  mend     only a person can change it
"""

import re
from collections.abc import Mapping
from typing import NamedTuple


class Advice(NamedTuple):
  """What a failure is, and what to do about it, in one line."""

  kind: str
  line: str


# Of every command, in gcloud's own words.
COMMON = (
  (
    "mend",
    r"active account selected|gcloud auth login|reauthentication|invalid_grant|could not find default credentials",
    "gcloud is not logged in; run `gcloud auth login`, then the same command",
  ),
  (
    "mend",
    r"unrecognized arguments|invalid choice",
    "this gcloud does not know the command; run `gcloud components update` (written for 528 and later), or look at "
    "--also and --ssh",
  ),
  (
    "mend",
    r"attribute \[project\]|core/project|project .*(not set|must be specified)",
    "no project is chosen; add --project=PROJECT, or run `gcloud config set project PROJECT`",
  ),
  (
    "mend",
    r"service_disabled|has not been used in project|api .*disabled",
    "the project has no TPU API yet; run `gcloud services enable tpu.googleapis.com{project}`, then the same command",
  ),
  (
    "later",
    r"per ?(\d+ ?)?(second|minute|day)|rate.?limit",
    "the project asks Google Cloud more often than it may in a minute; wait one, then run the same command",
  ),
  (
    "later",
    r"unable to reach|network is unreachable|name or service not known|name resolution|unable to find the server|"
    r"failed to establish a new connection|max retries exceeded|connection (aborted|reset)|\(connectionerror\)|"
    r"\(ssl\w*error\)|transporterror|could not reach",
    "this machine does not reach Google Cloud; look at its network, then run the same command",
  ),
  (
    "none",  # the whole path of a pod or of its node, or a bare name
    r"resource '(\S*/(?:queued_?resources|nodes)/)?[^'/\s]+' was not found|\[queued_?resource\S*\] not found",
    "there is no pod {name} in {zone}; `create` it, or look at --name, --zone and --project",
  ),
)
# Of a request to Cloud TPU or to a bucket. Quota and capacity share a code, so the more exact text comes first.
ASKING = (
  (
    "mend",
    r"quota.*exceeded|exceed.*quota|quota_exceeded|quota .*exhausted",
    "the project's {tier} quota for {type} in {zone} is used up, or 0; ask for more at "
    "https://console.cloud.google.com/iam-admin/quotas?service=tpu.googleapis.com, or take another --zone, --type or "
    "tier (on demand, --spot and --reserved have a quota each)",
  ),
  (
    "full",
    r"no more capacity|insufficient .*capacity|resource_exhausted|stockout|not enough resources|resource_pool",
    "{zone} has no room for {type} now; `watch` asks again until it has, or take another --zone or a smaller --type",
  ),
  (
    "unclear",
    r"already.?exists",
    "there is a pod {name} in {zone} already; look at its `status`, and `delete` it or take another --name",
  ),
  (
    "mend",
    r"accelerator.*(not found|invalid|unsupported|not available|not supported|does not exist)|invalid accelerator",
    "{zone} has no {type}; see `gcloud compute tpus accelerator-types list --zone={zone}{project}`",
  ),
  (
    "mend",
    r"runtime.?version|software version",
    "{zone} has no such software for hosts; give --version as `gcloud compute tpus tpu-vm versions list --zone={zone}"
    "{project}` names it",
  ),
  (
    "mend",
    r"(unknown|invalid|unsupported) (zone|location)|"
    r"(zone|location)s?[ /]['\"]?[\w-]+['\"]?,? .*(not found|invalid|unsupported|not exist)",
    "there is no Cloud TPU in {zone}; see `gcloud compute tpus locations list{project}`",
  ),
  (
    "mend",
    r"storage\.(objects|buckets)\.|bucket.*(not found|not exist)|matched no objects|gs://\S+ not found",
    "the bucket cannot be used; look at its name, and whether your account has roles/storage.objectAdmin on it",
  ),
  (
    "mend",
    r"permission|forbidden|\b403\b",
    "your account may not do this; it needs roles/tpu.admin and roles/iam.serviceAccountUser in the project "
    "(`gcloud auth list` says which account it is)",
  ),
  (
    "later",
    r"\bunavailable\b|\b50[0234]\b|\binternal(:| error| server)|deadline.exceeded|\b429\b|too many requests|timed out|"
    r"try again later|\baborted:",
    "Google Cloud is out of order for a moment; run the same command again",
  ),
  (
    "mend",
    r"not_?found|not found|could not fetch resource",
    "something that was asked for does not exist; look at --zone, --project and --also",
  ),
)
SILENT = (
  "; a young pod needs a minute, so run the same command again; where hosts have no external address add "
  "--ssh=--tunnel-through-iap; your key may be missing in ssh's agent, `ssh-add ~/.ssh/google_compute_engine`; if it "
  "stays so, `watch` makes a pod again that has answered before"
)
_FAILED = r"worker (\d+) failed with (?:exit status|return code) "
# Of a command on the hosts, whose own words may be anything.
REACHING = (
  (
    "mend",
    r"ssh key is not present",
    "ssh needs your key at hand; run `eval $(ssh-agent)` and `ssh-add ~/.ssh/google_compute_engine`, then the same "
    "command",
  ),
  (
    "unclear",  # gcloud's hint at ssh-add stands under every kind of failure of ssh's
    r"permission denied \(publickey",
    "the hosts do not take your ssh key; run `ssh-add ~/.ssh/google_compute_engine`; a new key needs a minute, and "
    "where the project uses OS Login your account needs roles/compute.osAdminLogin",
  ),
  (
    "gone",
    r"terminal state",
    "the pod was taken away or is stopped; `watch` makes it again and goes on from the last checkpoint",
  ),
  ("away", r"has state \"(\w+)\"", "the pod is {0} and may come back by itself; `watch` waits for it"),
  ("away", r"maintenance event", "the pod is in maintenance and comes back by itself; `watch` waits for it"),
  ("unclear", r"(launch: .*install first)", "{0}: run `install`, or `watch`, which does it"),
  ("mend", r"(launch: gs://\S+ is empty, or no such folder)", "{0}; look at --stage"),
  ("silent", _FAILED + "255", "worker {0} does not answer" + SILENT),
  (
    "silent",
    r"could not prepare all|connection (timed out|refused|closed|reset)|return code \[255\]|no route to host",
    "a worker does not answer" + SILENT,
  ),
  (
    "mend",
    r"storage\.(objects|buckets)\.|gcloud\.storage.*(permission|active account|not found|\b40[34]\b)",
    "the hosts may not read the bucket; give their service account roles/storage.objectAdmin on it",
  ),
  (
    "unclear",
    _FAILED + r"(\d+)",
    "worker {0} failed with status {1}; its lines above say why, and `logs --worker={0}` shows the run's own",
  ),
)


def advice(output: str, facts: Mapping[str, str], reaching: bool) -> Advice | None:
  """Returns what to do, or None where no row fits.

  Args:
    output: what the command wrote.
    facts: name, zone, type, tier and project.
    reaching: whether it ran on the hosts.
  """
  for rows, text in ((COMMON, own(output) if reaching else output), (REACHING if reaching else ASKING, output)):
    for kind, pattern, line in rows:
      if found := re.search(pattern, text, re.IGNORECASE):
        return Advice(kind, line.format(*found.groups(), **facts))
  return None


def own(output: str) -> str:
  """Returns what gcloud says for itself in the output of a command on the hosts: nothing, where the command has failed
  there, else all from its first error on. Hosts use gcloud, too, but only its storage."""
  if re.search(_FAILED, output, re.IGNORECASE):
    return ""
  found = re.search(r"^ERROR: (\(gcloud\.(?!storage)|gcloud crashed).*", output, re.MULTILINE | re.DOTALL)
  return found[0] if found else ""
