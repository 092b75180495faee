"""The Python client's informer, told what to do by test/tests/clients and answering in lines of JSON.

usage: informer.py KUBECONFIG NAMESPACE

It follows the ConfigMaps of a namespace, and shows everything at each line ("dump") on stdin.
"""

import functools
import json
import logging
import sys

from kubernetes import client, config
from kubernetes.informer import ADDED, MODIFIED, SharedInformer

# While a server is being restarted the informer logs every attempt to reach it.
logging.disable(logging.CRITICAL)


class Order:
    """Notices when an object goes back in time."""

    def __init__(self):
        self.newest = {}
        self.back = 0
        self.events = 0

    def seen(self, found):
        self.events += 1
        name, version = found.metadata.name, int(found.metadata.resource_version)
        if version < self.newest.get(name, 0):
            self.back += 1
        else:
            self.newest[name] = version


def counting(function, traffic):
    """The function an informer lists and watches with, counting both."""

    # The watch looks at the signature to find out what comes back.
    @functools.wraps(function)
    def counted(*args, **kwargs):
        answer = function(*args, **kwargs)
        # What never reached a server is no work for it, and is not counted.
        traffic["resumed" if kwargs.get("watch") else "lists"]["configmaps"] += 1
        return answer

    return counted


def dump(informer, order, traffic):
    for found in informer.cache.list():
        said = {
            "kind": "ConfigMap",
            "name": found.metadata.name,
            "resourceVersion": found.metadata.resource_version,
            "value": (found.data or {}).get("value", ""),
        }
        print(json.dumps(said))
    summary = {"back": order.back, "events": order.events, "traffic": traffic}
    print(json.dumps({"summary": summary}), flush=True)


def main(kubeconfig, namespace):
    config.load_kube_config(kubeconfig)
    order, traffic = Order(), {"lists": {"configmaps": 0}, "resumed": {"configmaps": 0}}
    follow = counting(client.CoreV1Api().list_namespaced_config_map, traffic)
    informer = SharedInformer(follow, namespace)
    # What a relist no longer holds is shown as it was last seen, so deletions say nothing about order.
    for kind in (ADDED, MODIFIED):
        informer.add_event_handler(kind, order.seen)
    informer.start()
    for _ in sys.stdin:
        dump(informer, order, traffic)


main(*sys.argv[1:])
