"""Designate in one process: its services share the in-memory transport of oslo.messaging, so that no broker is needed."""
import os
import sys

import eventlet

eventlet.monkey_patch(os=False)
from oslo_config import cfg  # noqa: E402
from oslo_log import log as logging  # noqa: E402
from oslo_service import service as oslo_service  # noqa: E402

import designate.conf  # noqa: E402
from designate import utils  # noqa: E402

CONF = designate.conf.CONF
cfg.CONF.import_group("keystone_authtoken", "keystonemiddleware.auth_token")
utils.read_config("designate", sys.argv)
logging.setup(CONF, "designate")
from designate.api import service as api  # noqa: E402
from designate.central import service as central  # noqa: E402
from designate.manage.pool import PoolCommands  # noqa: E402
from designate.mdns import service as mdns  # noqa: E402
from designate.producer import service as producer  # noqa: E402
from designate.worker import service as worker  # noqa: E402

launcher = oslo_service.ServiceLauncher(CONF)
launcher.launch_service(central.Service())
eventlet.sleep(1)
PoolCommands().update(os.environ["POOLS"], False)  # must be there before the worker starts
for module in (worker, producer, mdns, api):
    launcher.launch_service(module.Service())
launcher.wait()
