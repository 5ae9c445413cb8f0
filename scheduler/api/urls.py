from django.urls import path

from scheduler.history import api as history

from . import repairs, views

urlpatterns = [
    path("plans/", views.PlanList.as_view(), name="plan-list"),
    path("plans/<int:pk>/", views.PlanDetail.as_view(), name="plan-detail"),
    path("control/", views.ControlView.as_view(), name="control"),
    path("plan/", views.CurrentPlan.as_view(), name="plan-current"),
    path("history/", history.ClusterHistory.as_view(), name="history"),
    path("history/applications/", history.ApplicationsHistory.as_view(), name="history-applications"),
    path("history/applications/<str:name>/", history.ApplicationHistory.as_view(), name="history-application"),
    path("history/devices/<path:ref>/", history.DeviceHistory.as_view(), name="history-device"),
    path("marks/", history.Marks.as_view(), name="marks"),
    path("marks/<int:id>/", history.MarkDetail.as_view(), name="mark"),
    path("repairs/", repairs.RepairList.as_view(), name="repairs"),
    path("repairs/<path:key>/ignore/", repairs.RepairIgnore.as_view(), name="repair-ignore"),
]
