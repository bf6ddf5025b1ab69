"""What to do about a gcloud command that failed: the first row whose pattern its output holds.

{name}, {zone}, {type}, {tier} and {project} are the pod's, the last as a flag; {0}, {1} are the pattern's own groups.
"""

import re
from collections.abc import Mapping

COMMON = (
  (
    r"active account selected|gcloud auth login|reauthentication|invalid_grant|could not find default credentials",
    "gcloud is not logged in; run `gcloud auth login`, then the same command",
  ),
  (
    r"unrecognized arguments|invalid choice",
    "this gcloud does not know the command; run `gcloud components update` (written for 528 and later), or look at "
    "--also and --ssh",
  ),
  (
    r"attribute \[project\]|core/project|project .*(not set|must be specified)",
    "no project is chosen; add --project=PROJECT, or run `gcloud config set project PROJECT`",
  ),
  (
    r"service_disabled|has not been used in project|api .*disabled",
    "the project has no TPU API yet; run `gcloud services enable tpu.googleapis.com{project}`, then the same command",
  ),
  (
    r"unable to reach|network is unreachable|name or service not known|failed to establish a new connection",
    "this machine does not reach Google Cloud; look at its network, then run the same command",
  ),
)
# Of a request to Cloud TPU or to a bucket. Quota and capacity share a code, so the more exact text comes first.
ASKING = (
  (
    r"quota.*exceeded|exceed.*quota|quota_exceeded",
    "the project's {tier} quota for {type} in {zone} is used up, or 0; ask for more at "
    "https://console.cloud.google.com/iam-admin/quotas?service=tpu.googleapis.com, or take another --zone, --type or "
    "tier (on demand, --spot and --reserved have a quota each)",
  ),
  (
    r"no more capacity|insufficient .*capacity|resource_exhausted|stockout|not enough resources|resource_pool",
    "{zone} has no room for {type} now; `watch` asks again until it has, or take another --zone or a smaller --type",
  ),
  (
    r"already.?exists",
    "there is a pod {name} in {zone} already; look at its `status`, and `delete` it or take another --name",
  ),
  (
    r"accelerator.*(not found|invalid|unsupported|not available|not supported|does not exist)|invalid accelerator",
    "{zone} has no {type}; see `gcloud compute tpus accelerator-types list --zone={zone}{project}`",
  ),
  (
    r"runtime.?version|software version",
    "{zone} has no such software for hosts; give --version as `gcloud compute tpus tpu-vm versions list --zone={zone}"
    "{project}` names it",
  ),
  (
    r"(unknown|invalid|unsupported) (zone|location)|(zone|location)\S* .*(not found|invalid|unsupported|not exist)",
    "there is no Cloud TPU in {zone}; see `gcloud compute tpus locations list{project}`",
  ),
  (
    r"storage\.(objects|buckets)\.|bucket.*(not found|not exist)|matched no objects|gs://\S+ not found",
    "the bucket cannot be used; look at its name, and whether your account has roles/storage.objectAdmin on it",
  ),
  (
    r"permission|forbidden|\b403\b",
    "your account may not do this; it needs roles/tpu.admin and roles/iam.serviceAccountUser in the project "
    "(`gcloud auth list` says which account it is)",
  ),
  (
    r"not_?found|not found|could not fetch resource",
    "there is no pod {name} in {zone}; `create` it, or look at --name, --zone and --project",
  ),
)
_SILENT = (
  "; a young pod needs a minute, so run the same command again; where hosts have no external address add "
  "--ssh=--tunnel-through-iap; if it stays so, `watch` makes the pod again"
)
# Of a command on the hosts, whose own words may be anything.
REACHING = (
  (
    r"ssh-add|ssh key is not present",
    "ssh needs your key at hand; run `eval $(ssh-agent)` and `ssh-add ~/.ssh/google_compute_engine`, then the same "
    "command",
  ),
  (
    r"permission denied \(publickey",
    "the hosts do not take your ssh key; a new key needs a minute, and where the project uses OS Login your account "
    "needs roles/compute.osAdminLogin",
  ),
  (
    r"terminal state|has state \"(\w+)\"",
    "the pod was taken away or is stopped; `watch` makes it again and goes on from the last checkpoint",
  ),
  (r"maintenance event", "the pod is in maintenance and comes back by itself; `watch` waits for it"),
  (r"(launch: .*install first)", "{0}: run `install`, or `watch`, which does it"),
  (r"(launch: gs://\S+ is empty, or no such folder)", "{0}; look at --stage"),
  (r"worker (\d+) failed with exit status 255", "worker {0} does not answer" + _SILENT),
  (
    r"could not prepare all|connection (timed out|refused|closed|reset)|return code \[255\]|no route to host",
    "a worker does not answer" + _SILENT,
  ),
  (
    r"worker (\d+) failed with exit status (\d+)",
    "worker {0} failed with status {1}; its lines above say why, and `logs --worker={0}` shows the run's own",
  ),
  (
    r"storage\.(objects|buckets)\.|does not have permission|http(error)? 40[34]",
    "the hosts may not read the bucket; give their service account roles/storage.objectAdmin on it",
  ),
  (
    r"\(gcloud\.\S+\) not_?found|\[queued_?resource\S*\] not found|resource '\S+' was not found",
    "there is no pod {name} in {zone}; `create` it, or look at --name, --zone and --project",
  ),
)


def advice(output: str, facts: Mapping[str, str], reaching: bool) -> str | None:
  """Returns what to do, in one line, or None where no row fits.

  Args:
    output: what the command wrote.
    facts: name, zone, type, tier and project.
    reaching: whether it ran on the hosts.
  """
  for pattern, line in (*COMMON, *(REACHING if reaching else ASKING)):
    if found := re.search(pattern, output, re.IGNORECASE):
      return line.format(*found.groups(), **facts)
  return None
