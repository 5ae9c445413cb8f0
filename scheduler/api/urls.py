"""Addresses of the scheduler's REST calls."""

from django.urls import path

from scheduler.history import api as history

from . import frontier, operations, promises, queries, repairs, views, webhooks

urlpatterns = [
    path("plans/", views.PlanList.as_view(), name="plan-list"),
    path("plans/<int:pk>/", views.PlanDetail.as_view(), name="plan-detail"),
    path("plans/<int:pk>/trail/", views.PlanTrail.as_view(), name="plan-trail"),
    path("control/", views.ControlView.as_view(), name="control"),
    path("applications/<str:name>/queries/", queries.ApplicationQueries.as_view(), name="application-queries"),
    path("tasks/", operations.OperationList.as_view(), name="tasks"),
    path("uploads/<str:key>/", operations.UploadDetail.as_view(), name="upload"),
    path("webhooks/", webhooks.WebhookList.as_view(), name="webhooks"),
    path("webhooks/<str:name>/", webhooks.WebhookDetail.as_view(), name="webhook"),
    path("webhooks/<str:name>/test/", webhooks.WebhookTest.as_view(), name="webhook-test"),
    path("applications/<str:name>/frontier/", frontier.ApplicationFrontier.as_view(), name="application-frontier"),
    path("applications/<str:name>/slo/", frontier.ApplicationSlo.as_view(), name="application-slo"),
    path("plan/", views.CurrentPlan.as_view(), name="plan-current"),
    path("promises/", promises.PromiseList.as_view(), name="promises"),
    path("what-ifs/", promises.WhatIfList.as_view(), name="what-ifs"),
    path("what-ifs/<int:pk>/", promises.WhatIfDetail.as_view(), name="what-if"),
    path("what-ifs/<int:pk>/apply/", promises.WhatIfApply.as_view(), name="what-if-apply"),
    path("history/", history.ClusterHistory.as_view(), name="history"),
    path("history/applications/", history.ApplicationsHistory.as_view(), name="history-applications"),
    path("history/applications/<str:name>/", history.ApplicationHistory.as_view(), name="history-application"),
    path("history/devices/<path:ref>/", history.DeviceHistory.as_view(), name="history-device"),
    path("marks/", history.Marks.as_view(), name="marks"),
    path("marks/<int:id>/", history.MarkDetail.as_view(), name="mark"),
    path("repairs/", repairs.RepairList.as_view(), name="repairs"),
    path("repairs/<path:key>/ignore/", repairs.RepairIgnore.as_view(), name="repair-ignore"),
]
