"""Other hosts that generate a part of the load, reached by the user's ssh or a similar command."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass

_SSH_OPTIONS = (
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    # An unreachable host is detected after 15 seconds.
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
"""No terminal and no questions: the messages of the load use standard input. Options that the caller gives come before
them and therefore win (ssh_config(5))."""


@dataclass(frozen=True)
class Host:
    """A host and the command that starts a load process there."""

    name: str
    command: tuple[str, ...]


def hosts(names: str, *, shell: str = "ssh", kirsch: str = "kirsch") -> tuple[Host, ...]:
    """Return the hosts in a comma-separated list. ``shell`` runs a command on a host, such as ``ssh`` or ``kubectl
    exec -i``; ``kirsch`` is the command kirsch there. Raises ValueError."""
    found = [name.strip() for name in names.split(",")]
    if not all(found) or any(name.startswith("-") or name.split() != [name] for name in found):
        raise ValueError("is no list of hosts; write host1,user@host2")
    if len(set(found)) < len(found):
        raise ValueError("names a host twice; --processes gives each host more processes")
    words = shlex.split(shell)
    if not words:
        raise ValueError("is empty")
    options = _SSH_OPTIONS if os.path.basename(words[0]) == "ssh" else ()
    # ssh passes its words to a shell, which parses them again.
    far = [*shlex.split(kirsch), "bench", "worker"]
    return tuple(Host(name, (*words, *options, name, "--", *far)) for name in found)


@dataclass(frozen=True)
class Clock:
    """The clocks of another host: the seconds by which they are ahead of ours, plus or minus ``uncertainty``."""

    monotonic: float
    time: float
    uncertainty: float


def manifest(pods: int, image: str) -> str:
    """Return a Kubernetes Job whose pods wait for ``kirsch bench --on``, spread over the nodes."""
    return _MANIFEST.format(pods=pods, image=json.dumps(image), plain=image)


_MANIFEST = """\
# {pods} pods that make a load together:
#   kirsch bench --kubernetes {pods} --image {plain} | kubectl apply -f -
#   kubectl wait --for=condition=Ready pod -l app=kirsch-bench --timeout=2m
#   kirsch bench --ssh 'kubectl exec -i' --on "$(kubectl get pods -l app=kirsch-bench -o name | paste -sd,)" URL
#   kubectl delete job kirsch-bench
apiVersion: batch/v1
kind: Job
metadata:
  name: kirsch-bench
spec:
  parallelism: {pods}
  completions: {pods}
  completionMode: Indexed
  backoffLimit: 0
  # The pods end by themselves after an hour.
  activeDeadlineSeconds: 3600
  ttlSecondsAfterFinished: 60
  template:
    metadata:
      labels:
        app: kirsch-bench
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      # On different nodes, as far as there are enough.
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              app: kirsch-bench
      containers:
        - name: load
          image: {image}
          command: [sleep, "3600"]
          resources:
            requests:
              cpu: "1"
              memory: 256Mi
"""
