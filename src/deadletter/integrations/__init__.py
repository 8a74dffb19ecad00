"""
Integrations of task queues as they are: their workers file what fails for good.

    celery     deadletter.integrations.celery.install(app)
    dramatiq   broker.add_middleware(DeadLetters())
    rq         rq worker --worker-class deadletter.integrations.rq.DeadLetterWorker

Nothing is imported or opened here: each module needs the task queue that it is for.
"""
